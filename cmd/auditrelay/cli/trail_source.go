package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/timeline"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/sinks/kafka"
)

// trailSource answers questions about an audit trail: a running relay, or the files of a
// stopped one.
type trailSource interface {
	List(ctx context.Context, req console.ListTrail, yield func(timeline.Row) error) error
	Entries(ctx context.Context, f timeline.Filter, yield func(timeline.Entry) error) error
	Settings(ctx context.Context, f timeline.Filter) ([]timeline.Setting, error)
	At(ctx context.Context, w timeline.Where, at time.Time) (timeline.State, error)
}

// trailFlags name an audit trail: of a running relay, of the files of one, or elsewhere.
type trailFlags struct {
	filesFlags
	offline        bool
	url, tokenFile string // of a site
	folder         string // of an export or an archive
}

func (p Program) trail() *trailFlags {
	return &trailFlags{filesFlags: filesFlags{kinds: p.Kinds.Config()}}
}

const whichTrail = whichRelay + ` With
--offline it reads the files of a stopped relay instead, and checks no signature
('auditrelay journal verify' does).`

func (f *trailFlags) about() string { return whichTrail }

func (f *trailFlags) addTo(cmd *cobra.Command) {
	f.relayFlags.addTo(cmd)
	onOff(&f.offline, "offline", "read the files of a stopped relay").addTo(cmd)
}

// addFilesTo adds the flags that name the trail's files, after those of the command with which the
// files are elsewhere.
func (f *trailFlags) addFilesTo(cmd *cobra.Command, aboutURL, aboutOffline string, elsewhere ...string) {
	elsewhere = append([]string{"url"}, elsewhere...)
	addConfigFlag(cmd, &f.config, "the relay's configuration `FILE`")
	withFlags(cmd, text(&f.dataDir, "data-dir", "the relay's data `DIR`"), onOff(&f.offline, "offline", aboutOffline), text(&f.url, "url", aboutURL), text(&f.tokenFile, "token-file",
		"a `FILE` with the bearer token of --url (audit.serve.token or admin.token of the relay); default $"+tokenVariable),
		check(func() error {
			switch {
			case f.tokenFile != "" && f.url == "":
				return errors.New("--token-file needs --url")
			case f.dataDir == "" && f.config == "" && !slices.ContainsFunc(elsewhere, cmd.Flags().Changed):
				return errors.New("name the trail: --" + strings.Join(elsewhere, ", --") + ", --config or --data-dir")
			}
			return nil
		}))
	cmd.MarkFlagsMutuallyExclusive(append(elsewhere, "data-dir")...)
}

func (f *trailFlags) open(cmd *cobra.Command) (trailSource, error) {
	if f.offline {
		return f.readFiles(cmd.Context())
	}
	return f.relayFlags.open(cmd)
}

// readFiles makes an index for this command only: nothing in the data directory may change.
func (f *trailFlags) readFiles(ctx context.Context) (trailSource, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	trail, err := readTrail(ctx, cfg)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "auditrelay-trail-")
	if err != nil {
		return nil, fmt.Errorf("make an index of the trail: %w", err)
	}
	o := offlineTrail{Index: timeline.Open(timeline.Options{Path: filepath.Join(dir, timeline.FileName), Trail: trail})}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { o.Keep(ctx) })
	o.close = func() error {
		cancel()
		keeping.Wait()
		return os.RemoveAll(dir)
	}
	return o, nil
}

// find gives the files of the trail: on a site, in a folder, or else in the relay's data directory.
func (f *trailFlags) find(cmd *cobra.Command) (verify.Fetch, []string, error) {
	switch {
	case f.url != "":
		return f.site(cmd)
	case f.folder != "":
		return verify.Folder(f.folder)
	}
	data, err := f.dir()
	if err != nil {
		return nil, nil, err
	}
	return verify.Folder(filepath.Join(data, tiles.Dir))
}

func (f *trailFlags) prover(cmd *cobra.Command) (*verify.Prover, error) {
	fetch, dirs, err := f.find(cmd)
	if err != nil {
		return nil, err
	}
	return verify.NewProver(cmd.Context(), fetch, dirs)
}

// verifyLog verifies the trail's log in the data directory of a configuration.
func verifyLog(ctx context.Context, cfg *config.Config) (report audit.Report, unnamed []proof.Finding, err error) {
	trail, err := readTrail(ctx, cfg)
	if err != nil {
		return report, nil, err
	}
	return audit.VerifyOffline(ctx, app.TrailOptions(cfg), trail)
}

// readTrail opens the trail in the data directory of a configuration for reading only.
func readTrail(ctx context.Context, cfg *config.Config) (*audit.Reader, error) {
	s, err := app.ViewStore(cfg)
	if err != nil {
		return nil, err
	}
	return audit.OpenReader(ctx, s)
}

// offlineTrail is a trail without a relay.
type offlineTrail struct {
	*timeline.Index
	close func() error
}

func (o offlineTrail) Close() error { return o.close() }

// List implements trailSource.
func (o offlineTrail) List(ctx context.Context, req console.ListTrail, yield func(timeline.Row) error) error {
	if req.Follow {
		return errors.New("--follow needs a running relay: leave --offline out")
	}
	_, err := o.Index.List(ctx, req.Filter, yield)
	return err
}

// tokenVariable has the token of a guarded /tlog/, unless --token-file names a file.
const tokenVariable = "AUDITRELAY_TLOG_TOKEN"

// site finds the trail at the URL.
func (f *trailFlags) site(cmd *cobra.Command) (_ verify.Fetch, _ []string, err error) {
	client, token := &http.Client{}, secret.New(os.Getenv(tokenVariable))
	if f.tokenFile != "" {
		if token, err = readSecret(cmd, f.tokenFile); err != nil {
			return nil, nil, err
		}
	}
	if at, err := url.Parse(f.url); err == nil && !token.Empty() {
		client.Transport = bearer{token: token, scheme: at.Scheme, host: at.Host}
	}
	fetch, dirs, err := verify.Site(cmd.Context(), client, f.url)
	if errors.Is(err, verify.ErrRefused) {
		err = fmt.Errorf("%w: give the token for /tlog/ with --token-file FILE or %s", err, tokenVariable)
	}
	return fetch, dirs, err
}

// bearer sends a token to one host, and to no target of a redirect.
type bearer struct {
	token        secret.Text
	scheme, host string
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == b.scheme && r.URL.Host == b.host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token.Reveal())
	}
	return http.DefaultTransport.RoundTrip(r)
}

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
	withFlags(cmd, text(&f.topic, "from-kafka", "a Kafka topic with a sink's copy, `BROKER[,BROKER]/TOPIC`"),
		onOff(&f.tls, "kafka-tls", "connect to the brokers with TLS"),
		text(&f.ca, "kafka-ca", "a `FILE` with the authorities of the brokers' certificates, with --kafka-tls; default: the system's"),
		text(&f.user, "kafka-user", "the SASL user `NAME`; its password is in $"+kafkaPasswordVariable))
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
	return verify.EventRecords(cmd.Context(), copyOf(records), o)
}

// copyOf gives the records as they were delivered, with the attributes in their headers.
func copyOf(records iter.Seq2[kafka.Record, error]) iter.Seq2[verify.Delivered, error] {
	return func(yield func(verify.Delivered, error) bool) {
		for r, err := range records {
			if !yield(verify.Delivered{Event: r.Event, Text: r.Body}, err) {
				return
			}
		}
	}
}
