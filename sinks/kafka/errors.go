package kafka

import (
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"github.com/auditrelay/auditrelay/relay"
)

// class says what to do about an error of a produce request.
type class int

const (
	// retryable errors may pass, perhaps with an operator's help: a permission that was revoked
	// must not cost a single event.
	retryable class = iota
	// refused means that the broker does not take this request, but may take smaller runs, or
	// all records except some.
	refused
	// permanent means that no record of the request will ever be taken.
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

// tooLarge reports whether a run was refused because it was too large, and not because it was
// wrong.
func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge) ||
		errors.Is(err, kafka.InvalidMessageSize)
}

// advise adds to err what the operator can do about it, and its class, if they are known.
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

// isDenied reports whether the brokers deny the sink's principal a permission, or do not accept
// its credential.
func isDenied(code kafka.Error) bool {
	switch code {
	case kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SASLAuthenticationFailed,
		kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.TransactionalIDAuthorizationFailed:
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
	case kafka.TransactionalIDAuthorizationFailed:
		return `grant the sink's principal Describe and Write on the transactional ids with the prefix "auditrelay."`
	case kafka.InvalidTransactionTimeout:
		return "lower the sink's timeout, or raise the brokers' transaction.max.timeout.ms"
	case kafka.InvalidProducerEpoch, kafka.ProducerFenced:
		return "another process has the sink's transactional id since, or the transaction took too long"
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

// bare removes kafka-go's own prefix, "kafka.(*Client).Produce: ".
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
