package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// Cluster is a cluster of Apache Kafka brokers. Each of them is a process, and a KRaft
// controller too. It is for one goroutine at a time.
type Cluster struct {
	Client
	rig.Nodes
}

// Options say how the brokers of a cluster are run.
type Options struct {
	// Java is the program. Jars is the folder with Kafka's jars and their
	// dependencies, including an SLF4J binding.
	Java, Jars string
	// Dir is where the brokers keep their files.
	Dir string
	// Brokers is the number of brokers. Default 3.
	Brokers int
}

// startWithin bounds the start of brokers, on a machine with other work too.
const startWithin = 5 * time.Minute

// javaFlags keep a broker small, and its start short.
func javaFlags() []string {
	return []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
	}
}

// StartCluster formats the brokers' storage, starts them, and waits until each takes
// part.
func StartCluster(ctx context.Context, o Options) (k *Cluster, err error) {
	if o.Brokers == 0 {
		o.Brokers = 3
	}
	k = &Cluster{}
	defer func() {
		if err != nil {
			k.Close()
		}
	}()
	if err := k.configure(ctx, o); err != nil {
		return nil, err
	}
	if err := k.connect(); err != nil {
		return nil, err
	}
	if err := k.StartAll(); err != nil {
		return nil, err
	}
	err = rig.Until(ctx, startWithin, fmt.Sprintf("all %d kafka brokers are there", o.Brokers), func() bool {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		brokers, err := k.admin.ListBrokers(asking)
		return err == nil && len(brokers) == o.Brokers
	}, k.Alive()...)
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	return k, nil
}

// askTimeout bounds one question to a cluster, perhaps one without a leader.
const askTimeout = 5 * time.Second

// configure writes the brokers' properties and formats their storage.
func (k *Cluster) configure(ctx context.Context, o Options) error {
	free, err := rig.FreeAddresses(ctx, 2*o.Brokers)
	if err != nil {
		return err
	}
	controllers := free[o.Brokers:]
	k.Brokers = free[:o.Brokers]
	var voters []string
	for i, controller := range controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, controller))
	}
	id, err := clusterID()
	if err != nil {
		return err
	}
	java := append([]string{o.Java}, javaFlags()...)
	java = append(java, "-cp", filepath.Join(o.Jars, "*"))
	for i, broker := range k.Brokers {
		dir := filepath.Join(o.Dir, fmt.Sprintf("kafka-%d", i+1))
		text := kafkaProperties(i+1, broker, controllers[i], strings.Join(voters, ","), filepath.Join(dir, "data"), o.Brokers)
		if err := k.addBroker(ctx, fmt.Sprintf("kafka broker %d", i+1), broker, dir, text, id, java); err != nil {
			return err
		}
	}
	return nil
}

// addBroker formats a broker's storage with Kafka's own tool, in a second or two.
func (k *Cluster) addBroker(ctx context.Context, name, address, dir, properties, cluster string, java []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for kafka: %w", err)
	}
	file := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(file, []byte(properties), 0o600); err != nil {
		return fmt.Errorf("configure kafka: %w", err)
	}
	log := filepath.Join(dir, "broker.log")
	format := append(java[:len(java):len(java)], "kafka.tools.StorageTool", "format", "-t", cluster, "-c", file)
	if err := (rig.Command{Name: "formatting the storage of " + name, Dir: dir, Log: log, Args: format}).Run(ctx, nil); err != nil {
		return err
	}
	k.Add(address, rig.Command{Name: name, Dir: dir, Log: log, Args: append(java[:len(java):len(java)], "kafka.Kafka", file)})
	return nil
}

// clusterID returns a random id in Kafka's form. It must not begin with "-".
func clusterID() (string, error) {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("draw a cluster id: %w", err)
	}
	id[0] = 0
	return base64.RawURLEncoding.EncodeToString(id), nil
}

// kafkaProperties are a broker's settings. With them a cluster keeps all acknowledged
// records while one of three brokers is gone.
func kafkaProperties(id int, broker, controller, voters, dir string, brokers int) string {
	replicas, inSync := min(3, brokers), min(2, brokers)
	return fmt.Sprintf(`process.roles=broker,controller
node.id=%d
controller.quorum.voters=%s
listeners=PLAINTEXT://%s,CONTROLLER://%s
advertised.listeners=PLAINTEXT://%s
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%s
auto.create.topics.enable=false
default.replication.factor=%d
min.insync.replicas=%d
offsets.topic.replication.factor=%d
transaction.state.log.replication.factor=%d
transaction.state.log.min.isr=%d
broker.session.timeout.ms=6000
`, id, voters, broker, controller, broker, dir, replicas, inSync, replicas, replicas, inSync)
}

// CreateTopic makes a topic with as many replicas as the cluster keeps, and waits
// until they are in sync.
func (k *Cluster) CreateTopic(ctx context.Context, topic string, partitions int32) error {
	if err := k.On(topic).Create(ctx, partitions); err != nil {
		return err
	}
	return k.WaitInSync(ctx, topic, time.Minute)
}

// Busiest returns the leader of the partition with the most records.
func (k *Cluster) Busiest(ctx context.Context, topic string) (broker int, partition int32, err error) {
	details, err := k.details(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	ends, err := k.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, 0, fmt.Errorf("look for the busiest partition of %s: %w", topic, err)
	}
	most := int64(0)
	for _, end := range ends[topic] {
		if end.Err == nil && end.Offset > most {
			most, partition = end.Offset, end.Partition
		}
	}
	if most == 0 {
		return 0, 0, fmt.Errorf("look for the busiest partition of %s: none has records", topic)
	}
	leader := details.Partitions[partition].Leader
	if leader < 1 {
		return 0, 0, fmt.Errorf("look for the busiest partition of %s: number %d has no leader", topic, partition)
	}
	return int(leader) - 1, partition, nil
}

func (k *Cluster) details(ctx context.Context, topic string) (kadm.TopicDetail, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	topics, err := k.admin.ListTopics(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("describe the kafka topic %s: %w", topic, err)
	}
	if err := topics[topic].Err; err != nil {
		return kadm.TopicDetail{}, fmt.Errorf("describe the kafka topic %s: %w", topic, err)
	}
	return topics[topic], nil
}

// WaitInSync waits until every replica of every partition is in sync. Then the next
// broker may be killed.
func (k *Cluster) WaitInSync(ctx context.Context, topic string, within time.Duration) error {
	last := error(kerr.UnknownTopicOrPartition)
	err := rig.Until(ctx, within, "all replicas of the kafka topic "+topic+" are in sync", func() bool {
		var d kadm.TopicDetail
		if d, last = k.details(ctx, topic); last != nil || len(d.Partitions) == 0 {
			return false
		}
		for _, p := range d.Partitions {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				last = fmt.Errorf("partition %d has leader %d, replicas %v, in sync %v", p.Partition, p.Leader, p.Replicas, p.ISR)
				return false
			}
		}
		return true
	}, k.Alive()...)
	if err != nil {
		return fmt.Errorf("%w (%w)", err, last)
	}
	return nil
}

// Close disconnects, and kills the brokers.
func (k *Cluster) Close() {
	k.Client.Close()
	k.KillAll()
}
