"""CreateTopics: each topic asked for, or why it cannot be.

One with the option ``view.on`` becomes a view (``cluster/views.py``).
"""

from waystation.apis.call import Call
from waystation.apis.deadline import within
from waystation.apis.errors import told
from waystation.broker.broker import Broker
from waystation.broker.topics import Outcomes
from waystation.cluster.effective import Explained
from waystation.cluster.topics import TopicPlan, TopicSpec
from waystation.cluster.views import is_wanted
from waystation.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from waystation.model.errors import RequestTimedOutError, WaystationError
from waystation.model.ids import NodeId


async def answer(broker: Broker, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    """The outcome for each topic; those made can be written to at once."""
    request = call.message
    specs = [_spec(topic) for topic in request.topics]
    making = broker.topics.create(specs, validate_only=request.validate_only)
    outcomes: Outcomes
    try:
        outcomes = await within(request.timeout_ms, making)
    except RequestTimedOutError as error:
        outcomes = dict.fromkeys((spec.name for spec in specs), error)
    return CreateTopicsResponse(
        topics=[_result(broker, name, outcome) for name, outcome in outcomes.items()]
    )


def _spec(topic: CreatableTopic) -> TopicSpec:
    assignments = [
        (one.partition_index, [NodeId(node) for node in one.broker_ids])
        for one in topic.assignments
    ]
    return TopicSpec(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments,
        {one.name: one.value for one in topic.configs},
    )


def _result(
    broker: Broker, name: str, outcome: TopicPlan | WaystationError
) -> CreatableTopicResult:
    if isinstance(outcome, WaystationError):
        code, message = told(outcome)
        return CreatableTopicResult(name=name, error_code=code, error_message=message, configs=[])
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.id,
        num_partitions=outcome.partitions,
        replication_factor=outcome.replication_factor,
        configs=[_config(one) for one in _options(broker, name, outcome)],
    )


def _options(broker: Broker, name: str, plan: TopicPlan) -> list[Explained]:
    if is_wanted(plan.options):
        return broker.configs.explain_view(plan.options)
    return broker.configs.explain_topic(name, plan.options)


def _config(one: Explained) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(name=one.name, value=one.value, config_source=one.source)
