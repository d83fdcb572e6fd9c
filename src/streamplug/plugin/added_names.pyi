# Names that our distributions add to the package. Written by .ci/register.

from streamplug_tokens import TokenBlocks as TokenBlocks
from streamplug_tokens import TokenDataset as TokenDataset
from streamplug_tokens import TokenPacks as TokenPacks
from streamplug_tools.merge import merge_index as merge_index
from streamplug_tools.partitioned import write_parts as write_parts
from streamplug_tools.table_import import write_from as write_from
from streamplug_views import View as View
