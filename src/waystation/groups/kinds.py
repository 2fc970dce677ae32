"""The two kinds of groups, alike in what does not depend on their protocol."""

from waystation.groups.classic import ClassicGroup
from waystation.groups.consumer import ConsumerGroup

Group = ClassicGroup | ConsumerGroup
