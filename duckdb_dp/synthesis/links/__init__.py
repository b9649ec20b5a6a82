"""Synthetic links between the rows of two synthetic tables.

``columns`` goes from a request to what is stored, and ``methods`` measures, fits and draws. ``sides`` and ``blocks`` say what
links are fitted on: row types, and links per pair of row types. Two methods learn links: ``adaptive_links``, with ``learner``,
``evidence``, ``allocate`` and ``fit``, and the published ``mwem_pgd``, with ``pgd``. ``assign_links``, with ``ubs`` and
``tiles``, gives the links to rows. ``linked_rows``, ``link_attributes`` and ``hierarchy`` are for tables that need them.
"""
