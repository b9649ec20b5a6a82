"""The orchestration of synthesis: request -> charge -> measure -> fit -> draw -> stored columns.

``functions`` performs requests. ``table`` makes the rows of one table and ``links`` the links between the rows of two;
``quality`` scores either, and ``database`` knows the tables of a schema and their foreign keys, and which table is made first.
In ``table`` and ``links``, ``columns`` goes from a request to what a release stores, and ``methods`` measures, fits and draws.
Only measuring uses private counts, through a ``PrivateQueryable``; everything after it is post-processing.

Nothing is imported here, because a first marginal needs ``base`` and ``database`` only.
"""
