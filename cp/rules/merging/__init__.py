"""Merging: many confs into one as JSON merge patches (RFC 7396), remembering who set each value and who lost.

A later layer wins. A null removes what earlier layers wrote on its own level and on narrower ones (record 0038). Lists
are replaced, except those whose name begins with `append` and those that are merged by key.
"""

from cp.rules.merging.cut import alone as alone
from cp.rules.merging.cut import put as put
from cp.rules.merging.cut import without as without
from cp.rules.merging.merge import NOTHING as NOTHING
from cp.rules.merging.merge import PLAIN as PLAIN
from cp.rules.merging.merge import MergedConf as MergedConf
from cp.rules.merging.merge import MergeOptions as MergeOptions
from cp.rules.merging.merge import groups_of as groups_of
from cp.rules.merging.merge import merge as merge
from cp.rules.merging.merge import merge_group as merge_group
from cp.rules.merging.merge import merge_groups as merge_groups
from cp.rules.merging.merge import overlay as overlay
from cp.rules.merging.origins import Conf as Conf
from cp.rules.merging.origins import KeyedEntry as KeyedEntry
from cp.rules.merging.origins import Layer as Layer
from cp.rules.merging.origins import MergedField as MergedField
from cp.rules.merging.origins import Origin as Origin
from cp.rules.merging.origins import Removal as Removal
from cp.rules.merging.origins import Setting as Setting
