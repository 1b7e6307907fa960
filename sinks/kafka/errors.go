package kafka

import (
	"errors"
	"fmt"
	"slices"

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
	if advice := advices[code]; advice != "" {
		err = fmt.Errorf("%w (%s)", err, advice)
	}
	if slices.Contains(denials, code) {
		err = relay.WithClass(err, relay.ClassAuthentication)
	}
	return err
}

// denials are the errors of brokers that deny the sink's principal a permission, or do not accept its
// credential.
var denials = []kafka.Error{
	kafka.TopicAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SASLAuthenticationFailed,
	kafka.UnsupportedSASLMechanism, kafka.IllegalSASLState, kafka.TransactionalIDAuthorizationFailed,
}

// advices are what an operator can do, by error.
var advices = map[kafka.Error]string{
	kafka.TopicAuthorizationFailed:           "grant the sink's principal Describe and Write on the topic, and Create where create_topic is set",
	kafka.ClusterAuthorizationFailed:         "grant the sink's principal Create on the cluster or the topic, or unset create_topic",
	kafka.TransactionalIDAuthorizationFailed: `grant the sink's principal Describe and Write on the transactional ids with the prefix "auditrelay."`,
	kafka.InvalidTransactionTimeout:          "lower the sink's timeout, or raise the brokers' transaction.max.timeout.ms",
	kafka.InvalidProducerEpoch:               fenced,
	kafka.ProducerFenced:                     fenced,
	kafka.SASLAuthenticationFailed:           "check sasl.username and sasl.password",
	kafka.UnsupportedSASLMechanism:           "the broker does not offer sasl.mechanism",
	kafka.IllegalSASLState:                   "check that the broker's listener expects SASL",
	kafka.UnknownTopicOrPartition:            "create the topic, or set create_topic",
	kafka.UnsupportedCompressionType:         "set compression to one that the brokers know",
	kafka.NotEnoughReplicas:                  fewInSync,
	kafka.NotEnoughReplicasAfterAppend:       fewInSync,
	kafka.InvalidReplicationFactor:           "set replication_factor to no more than the number of brokers",
}

const (
	fenced    = "another process has the sink's transactional id since, or the transaction took too long"
	fewInSync = "fewer replicas are in sync than the topic's min.insync.replicas"
)

// bare removes kafka-go's own prefix, "kafka.(*Client).Produce: ".
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
