"""Synthetic links between the rows of two synthetic tables.

``columns`` goes from a request to what is stored, and ``methods`` measures, fits and draws. ``sides`` and ``blocks`` define what
links are fitted on: row types, and links per pair of row types. Two methods estimate links: ``adaptive_links``, with ``learner``,
``evidence``, ``allocate`` and ``fit``, and the published ``mwem_pgd``, with ``pgd``. ``assign_links``, with ``ubs`` and
``tiles``, assigns the links to rows, whose ``degrees`` are measured; ``popularity`` says how many links rows have that anybody
may see, and ``shapes`` what is known of both sides. ``within``, with ``per_unit`` and ``redeal``, keeps what the
links of one unit have in common. ``linked_rows``, ``link_attributes`` and ``hierarchy`` are for the tables that need them.
"""
