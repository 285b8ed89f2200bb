"""The colours of answers on a terminal, by what they mean.

They are of the fixed part of the 256 colours, and can be read on white and on black (a contrast of 3.8 and more): the
first sixteen are whatever the terminal's palette makes of them; its yellow, green and cyan often vanish on white.
"""

GOOD = "color(29)"
ODD = "color(166)"
"""Worth a look."""
BAD = "color(160)"
SHARE = "color(31)"
OTHERS = "color(133)"
"""Of another program."""
