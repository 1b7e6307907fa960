package cli

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/sinks/kafka"
)

// kafkaPasswordVariable has the password of --kafka-user.
const kafkaPasswordVariable = "AUDITRELAY_KAFKA_PASSWORD"

// kafkaFlags name a topic with a sink's copy of the trail.
type kafkaFlags struct {
	topic           string // BROKER[,BROKER]/TOPIC
	tls             bool
	ca              string
	user, mechanism string
}

func (f *kafkaFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.topic, "from-kafka", "", "a Kafka topic with a sink's copy, `BROKER[,BROKER]/TOPIC`")
	flags.BoolVar(&f.tls, "kafka-tls", false, "connect to the brokers with TLS")
	flags.StringVar(&f.ca, "kafka-ca", "", "a `FILE` with the authorities of the brokers' certificates, with --kafka-tls; default: the system's")
	flags.StringVar(&f.user, "kafka-user", "", "the SASL user `NAME`; its password is in $"+kafkaPasswordVariable)
	flags.StringVar(&f.mechanism, "kafka-sasl", "scram-sha-512", "the SASL `MECHANISM`: plain, scram-sha-256 or scram-sha-512")
	before(cmd, func() error {
		for _, name := range []string{"kafka-tls", "kafka-ca", "kafka-user", "kafka-sasl"} {
			if flags.Changed(name) && f.topic == "" {
				return fmt.Errorf("--%s needs --from-kafka", name)
			}
		}
		if f.topic == "" {
			return nil
		}
		_, err := f.section()
		return err
	})
}

// section is the topic as a sink has it in a configuration.
func (f *kafkaFlags) section() (config.Kafka, error) {
	brokers, topic, found := strings.Cut(f.topic, "/")
	if !found || brokers == "" || topic == "" {
		return config.Kafka{}, errors.New("--from-kafka is BROKER[,BROKER]/TOPIC, such as kafka-1:9092,kafka-2:9092/auditrelay.events")
	}
	cfg := config.Kafka{Brokers: strings.Split(brokers, ","), Topic: topic}
	if f.ca != "" && !f.tls {
		return config.Kafka{}, errors.New("--kafka-ca needs --kafka-tls")
	}
	if f.tls {
		cfg.TLS = &config.TLSClient{CAFile: f.ca}
	}
	if f.user != "" {
		password := secret.New(os.Getenv(kafkaPasswordVariable))
		if password.Empty() {
			return config.Kafka{}, errors.New("--kafka-user needs its password in the environment variable " + kafkaPasswordVariable)
		}
		cfg.SASL = &config.KafkaSASL{Mechanism: f.mechanism, Username: f.user, Password: password}
	}
	if err := (&config.Sink{Name: "from-kafka", Kafka: &cfg}).Complete(); err != nil {
		return config.Kafka{}, fmt.Errorf("--from-kafka: %w", err)
	}
	return cfg, nil
}

// verify reads the topic, and verifies the audit events in it.
func (f *kafkaFlags) verify(cmd *cobra.Command, shown *progress, o verify.Options) (verify.Report, error) {
	cfg, err := f.section()
	if err != nil {
		return verify.Report{}, err
	}
	topic, err := kafka.OpenCopy(cmd.Context(), cfg)
	if err != nil {
		return verify.Report{}, err
	}
	o.Progress = nil // of entries: most records are of the event stream
	records := topic.Records(cmd.Context(), func(n int64) {
		shown.report(&console.Progress{Done: uint64(n), Total: uint64(topic.Size()), Unit: "records"})
	})
	return verify.EventRecords(cmd.Context(), delivered(records), o)
}

// delivered gives the records as they were delivered, with the attributes in their headers.
func delivered(records iter.Seq2[kafka.Record, error]) iter.Seq2[verify.Delivered, error] {
	return func(yield func(verify.Delivered, error) bool) {
		for r, err := range records {
			if !yield(verify.Delivered{Event: r.Event, Text: r.Body}, err) {
				return
			}
		}
	}
}
