package kafka

import (
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/relay"
)

// class is the way to treat an error of a produce request.
type class int

const (
	// retryable errors may pass, perhaps after an operator's help: a revoked permission
	// must not cost a single event.
	retryable class = iota
	// refused: the broker does not take this request, but may take smaller runs, or all
	// records except some.
	refused
	// permanent: no record of the request will ever be taken.
	permanent
)

func classify(err error) class {
	var code kafka.Error
	if !errors.As(err, &code) {
		return retryable
	}
	switch code {
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge, kafka.InvalidMessageSize,
		kafka.InvalidTimestamp, kafka.InvalidRecord:
		return refused
	case kafka.InvalidTopic:
		return permanent
	default:
		return retryable
	}
}

// tooLarge reports whether a refused run was too large, rather than wrong.
func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge) ||
		errors.Is(err, kafka.InvalidMessageSize)
}

// advise adds the operator's remedy for err, and its class, if known.
func advise(err error) error {
	var code kafka.Error
	if !errors.As(err, &code) {
		return err
	}
	if advice := adviceFor(code); advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	if isDenied(code) {
		err = relay.WithClass(err, relay.ClassAuthentication)
	}
	return err
}

// isDenied reports whether the brokers refuse the sink's principal, or do not believe it.
func isDenied(code kafka.Error) bool {
	switch code {
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SASLAuthenticationFailed,
		kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState:
		return true
	}
	return false
}

func adviceFor(code kafka.Error) string {
	switch code {
	case kafka.TopicAuthorizationFailed:
		return "grant the sink's principal Describe and Write on the topic, and Create where create_topic is set"
	case kafka.ClusterAuthorizationFailed:
		return "grant the sink's principal Create on the cluster or the topic, or unset create_topic"
	case kafka.SASLAuthenticationFailed:
		return "check sasl.username and sasl.password"
	case kafka.UnsupportedSASLMechanism:
		return "the broker does not offer sasl.mechanism"
	case kafka.IllegalSASLState:
		return "check that the broker's listener expects SASL"
	case kafka.UnknownTopicOrPartition:
		return "create the topic, or set create_topic"
	case kafka.UnsupportedCompressionType:
		return "set compression to one that the brokers know"
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return "fewer replicas are in sync than the topic's min.insync.replicas"
	case kafka.InvalidReplicationFactor:
		return "set replication_factor to no more than the number of brokers"
	default:
		return ""
	}
}

// bare takes off kafka-go's own prefix, "kafka.(*Client).Produce: ".
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
