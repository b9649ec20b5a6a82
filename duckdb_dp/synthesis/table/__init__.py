"""The rows of one synthetic table.

``columns`` goes from a request to what is stored, and ``methods`` measures, fits and draws. The built-in method measures
``singles``, then ``pairs``, estimates all pairs by a ``forest`` of measured ones, and moves ``records`` until they fit
(``fitting``, which sees pairs by ``views``).
``graphical`` has the published methods MST and AIM.
"""
