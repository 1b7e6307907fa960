package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/auditrelay/auditrelay/internal/testbed/kafkatest"
)

// kafkaPOM pins the version of Kafka.
//
//go:embed kafka-pom.xml
var kafkaPOM []byte

const kafkaTopic, kafkaPartitions = "events", 6

// kafkaCluster returns the brokers for all Kafka destinations.
func (s *session) kafkaCluster(ctx context.Context) (*kafkatest.Cluster, error) {
	if s.kafka != nil {
		return s.kafka, nil
	}
	java, err := findJava(ctx)
	if err != nil {
		return nil, err
	}
	jars, err := s.kafkaJars(ctx)
	if err != nil {
		return nil, err
	}
	s.kafka, err = kafkatest.StartCluster(ctx, kafkatest.Options{Java: java, Jars: jars, Dir: s.dir, Brokers: s.brokers})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.kafka.Close)
	return s.kafka, nil
}

func startKafka(ctx context.Context, s *session) (*place, error) {
	cluster, err := s.kafkaCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := cluster.CreateTopic(ctx, kafkaTopic, kafkaPartitions); err != nil {
		return nil, err
	}
	return &place{
		targets: []target{kafkaTarget(cluster)},
		outage:  kafkaOutage(cluster),
		tails:   cluster.Tails,
	}, nil
}

// onceTopic gets each event exactly once.
const onceTopic = "once"

func startKafkaOnce(ctx context.Context, s *session) (*place, error) {
	p, err := s.oncePlace(ctx, onceTopic, target{name: "kafka, exactly once", sink: "kafka-once", once: true})
	if err == nil {
		p.ordeal = &ordeal{name: "relay killed", times: s.relayKills, run: killRelay}
	}
	return p, err
}

// oncePlace is a topic that gets each event exactly once.
func (s *session) oncePlace(ctx context.Context, topic string, t target) (*place, error) {
	cluster, err := s.kafkaCluster(ctx)
	if err != nil {
		return nil, err
	}
	if err := cluster.CreateTopic(ctx, topic, kafkaPartitions); err != nil {
		return nil, err
	}
	t.section = fmt.Sprintf("kafka: {brokers: [\"%s\"], topic: %s, delivery: exactly_once, create_topic: true}", strings.Join(cluster.Brokers, `", "`), topic)
	t.read = readerOf(cluster.On(topic))
	return &place{targets: []target{t}, tails: cluster.Tails}, nil
}

func kafkaTarget(cluster *kafkatest.Cluster) target {
	return target{
		name: "kafka RF 3", sink: "kafka",
		section: fmt.Sprintf("kafka: {brokers: [\"%s\"], topic: %s}", strings.Join(cluster.Brokers, `", "`), kafkaTopic),
		read:    readerOf(cluster.On(kafkaTopic)),
	}
}

// kafkaOutage kills the leader of the partition with the most records.
func kafkaOutage(cluster *kafkatest.Cluster) *outage {
	var down int
	return &outage{
		kill: func(ctx context.Context) (string, error) {
			broker, partition, err := cluster.Busiest(ctx, kafkaTopic)
			if err != nil {
				return "", err
			}
			down = broker
			cluster.Kill(down)
			return fmt.Sprintf("%s, the leader of partition %d,", cluster.Name(down), partition), nil
		},
		heal: func(ctx context.Context) error {
			if err := cluster.Restart(ctx, down); err != nil {
				return err
			}
			return cluster.WaitInSync(ctx, kafkaTopic, healing)
		},
	}
}

// kafkaJava is the oldest Java for Kafka's brokers.
const kafkaJava = 17

// findJava returns the first java found, if it is new enough.
func findJava(ctx context.Context) (string, error) {
	path, err := exec.LookPath("java")
	if err != nil {
		return "", &skip{fmt.Sprintf("there is no java here; it needs Java %d or newer (apt install openjdk-17-jre-headless)", kafkaJava)}
	}
	said, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", &skip{fmt.Sprintf("%s -version failed (%v): %s", path, err, bytes.TrimSpace(said))}
	}
	if version := javaVersion(string(said)); version < kafkaJava {
		return "", &skip{fmt.Sprintf("%s is Java %d, it needs %d or newer", path, version, kafkaJava)}
	}
	return path, nil
}

// javaVersion reads the major version from the output of java -version, such as openjdk
// version "17.0.15" 2025-04-15; 0 if there is none.
func javaVersion(said string) int {
	match := regexp.MustCompile(`version "(\d+)`).FindStringSubmatch(said)
	if match == nil {
		return 0
	}
	version, err := strconv.Atoi(match[1])
	if err != nil {
		return 0
	}
	return version
}

// kafkaJars returns the folder with Kafka's jars. Maven fetches them once.
func (s *session) kafkaJars(ctx context.Context) (string, error) {
	dir := filepath.Join(s.cache, fmt.Sprintf("kafka-%016x", xxhash.Sum64(kafkaPOM)))
	return dir, s.cached(ctx, dir, func(ctx context.Context, into string) error {
		maven, err := exec.LookPath("mvn")
		if err != nil {
			return &skip{"there is no mvn here, which fetches Kafka (apt install maven)"}
		}
		pom := filepath.Join(into, "pom.xml")
		if err := os.WriteFile(pom, kafkaPOM, 0o600); err != nil {
			return err
		}
		return s.build(ctx, "mvn", maven, "-B", "-Dstyle.color=never", "-f", pom, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+into)
	})
}
