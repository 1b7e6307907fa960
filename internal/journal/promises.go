package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/config"
)

// Promise is one thing that the external servers were asked about: what they
// promise of what they acknowledge.
type Promise struct {
	What    string `json:"what"`
	Found   string `json:"found"`
	Verdict string `json:"verdict"` // one of the constants below
}

// Verdicts on a promise.
const (
	Kept   = "ok"
	Weak   = "warning" // a fault may lose what was acknowledged
	Broken = "refused" // the relay does not start, as nothing acknowledged would be durable
)

const (
	// promiseTimeout bounds one question.
	promiseTimeout = 3 * time.Second
	// promiseSilence is how long nothing has to come before all servers have answered.
	promiseSilence = 500 * time.Millisecond
	// replicasWanted go on, and keep everything, when one of them is lost.
	replicasWanted = 3
)

// Check connects to the external servers of cfg, which must have its defaults,
// and asks what they promise. It makes no stream and writes nothing. The error says
// why they could not be asked.
func Check(ctx context.Context, cfg config.Journal) ([]Promise, error) {
	opts, err := dialOptions(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c := &Conn{}
	if err := c.open(append(opts, quiet(slog.New(slog.DiscardHandler)), nats.MaxReconnects(0))...); err != nil {
		return nil, fmt.Errorf("journal.url %s: %w", cfg.URL, err) // it holds no password
	}
	defer c.nc.Close()
	return askPromises(ctx, c, cfg)
}

// Refusal joins the broken promises into an error, nil without any.
func Refusal(promises []Promise) error {
	var errs []error
	for _, p := range promises {
		if p.Verdict == Broken {
			errs = append(errs, fmt.Errorf("%s: %s", p.What, p.Found))
		}
	}
	return errors.Join(errs...)
}

// checkPromises refuses servers that acknowledge what is not durable, and warns
// of those that may lose it.
func (j *Journal) checkPromises(ctx context.Context) error {
	if j.conn.embedded != nil {
		return nil
	}
	promises, err := askPromises(ctx, j.conn, j.cfg)
	if err != nil {
		return err
	}
	for _, p := range promises {
		if p.Verdict == Weak {
			j.log.Warn("the journal's servers may lose what they acknowledge", "what", p.What, "found", p.Found)
		}
	}
	return Refusal(promises)
}

// asked is one round of questions.
type asked struct {
	conn     *Conn
	cfg      config.Journal
	promises []Promise
}

func (a *asked) found(verdict, what, format string, args ...any) {
	a.promises = append(a.promises, Promise{What: what, Found: fmt.Sprintf(format, args...), Verdict: verdict})
}

func askPromises(ctx context.Context, conn *Conn, cfg config.Journal) ([]Promise, error) {
	a := &asked{conn: conn, cfg: cfg}
	nc := conn.nc
	a.found(Kept, "server", "%s, version %s, cluster %q", nc.ConnectedServerName(), nc.ConnectedServerVersion(), nc.ConnectedClusterName())
	a.replicas()
	a.account(ctx)
	if err := a.streams(ctx); err != nil {
		return nil, err
	}
	a.sync(ctx)
	return a.promises, nil
}

func (a *asked) replicas() {
	switch n := a.cfg.Replicas; {
	case n == 1:
		a.found(Weak, "journal.replicas", "1: there is one copy, so that acknowledged events are lost with its disk; a cluster of three servers and replicas: 3 keep them")
	case n < replicasWanted:
		a.found(Weak, "journal.replicas", "%d: the loss of one server stops ingest; 3 go on without one", n)
	default:
		a.found(Kept, "journal.replicas", "%d", n)
	}
}

// account looks at the limits of the account.
func (a *asked) account(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, promiseTimeout)
	defer cancel()
	info, err := a.conn.JetStream.AccountInfo(ctx)
	if err != nil {
		a.found(Weak, "account", "its limits could not be told: %v", err)
		return
	}
	limits := info.Limits
	if tier, ok := info.Tiers[fmt.Sprintf("R%d", a.cfg.Replicas)]; ok {
		limits = tier.Limits
	}
	wanted := int64(a.cfg.MaxBytes)
	switch {
	case limits.MaxStore < 0:
		a.found(Kept, "account", "has no limit of storage")
	case limits.MaxStore < wanted:
		a.found(Weak, "account", "may store %d bytes, less than journal.max_bytes, which is %d: pushes are refused before the budget is spent", limits.MaxStore, wanted)
	default:
		a.found(Kept, "account", "may store %d bytes", limits.MaxStore)
	}
}

// streamNames are those of all streams that the relay keeps with a prefix. They are
// asked for by name: a list leaves out those that no server leads.
func streamNames(prefix string) []string {
	names := []string{"KV_" + prefix + "_credentials"}
	for _, of := range []string{"EVENTS", "DEADLETTERS", "QUARANTINE", "SINKS", "AUDIT", "CHECKPOINTS"} {
		names = append(names, prefix+"_"+of)
	}
	return names
}

// streams looks at those of the relay that there are.
func (a *asked) streams(ctx context.Context) error {
	some := false
	for _, name := range streamNames(a.cfg.StreamPrefix) {
		stream, err := a.conn.JetStream.Stream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("ask for stream %s: %w", name, err)
		}
		some = true
		a.stream(stream.CachedInfo())
	}
	if !some {
		a.found(Kept, "streams", "there are none of prefix %s; the relay makes them", a.cfg.StreamPrefix)
	}
	return nil
}

// makeAnew is what to do about a setting that no update changes.
const makeAnew = "this cannot be changed: let every sink take what the stream holds, stop the relay, delete the stream, and start the relay, which makes it anew"

// stream looks at one stream.
func (a *asked) stream(info *jetstream.StreamInfo) {
	what, before := "stream "+info.Config.Name, len(a.promises)
	if info.Config.PersistMode == jetstream.AsyncPersistMode {
		a.found(Broken, what, "has persist_mode async: its server acknowledges before anything is on disk, whatever sync_interval says; %s", makeAnew)
	}
	if info.Config.Storage != jetstream.FileStorage {
		a.found(Broken, what, "is kept in memory: a restart loses it; %s", makeAnew)
	}
	if info.Config.Replicas < a.cfg.Replicas {
		a.found(Weak, what, "has %d of %d replicas, until the relay's start sets that", info.Config.Replicas, a.cfg.Replicas)
	}
	if info.Cluster != nil {
		for _, peer := range info.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				a.found(Weak, what, "its copy on %s is not current: offline %t, behind by %d", peer.Name, peer.Offline, peer.Lag)
			}
		}
	}
	if len(a.promises) == before {
		a.found(Kept, what, "%d replicas in file storage", info.Config.Replicas)
	}
}

// setSync is how servers are set to sync.
const setSync = "set 'jetstream { sync_interval: always }' on every server: the default syncs every two minutes, so that a power cut loses what was acknowledged in between"

// sync asks every server how it syncs. Mostly only the system account may.
func (a *asked) sync(ctx context.Context) {
	servers := a.askServers(ctx)
	if len(servers) == 0 {
		a.found(Weak, "sync_interval", "it could not be told, as only the system account may ask for it; %s", setSync)
	}
	for _, s := range servers {
		what := "sync_interval of " + s.Server.Name
		if s.Data.Config.SyncAlways {
			a.found(Kept, what, "always")
			continue
		}
		a.found(Weak, what, "%v; %s", s.Data.Config.SyncInterval, setSync)
	}
}

// serverAnswer is what of a server's answer matters here.
type serverAnswer struct {
	Server struct {
		Name string `json:"name"`
	} `json:"server"`
	Data struct {
		Config struct {
			SyncInterval time.Duration `json:"sync_interval"`
			SyncAlways   bool          `json:"sync_always"`
		} `json:"config"`
	} `json:"data"`
}

// askServers asks all servers for their settings of JetStream, and returns the
// answers that come: none where these credentials may not ask.
func (a *asked) askServers(ctx context.Context) (all []serverAnswer) {
	inbox := a.conn.nc.NewRespInbox()
	answers, err := a.conn.nc.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer func() { _ = answers.Unsubscribe() }() // else it ends with the connection
	if err := a.conn.nc.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, []byte(`{"config":true}`)); err != nil {
		return nil
	}
	for wait := promiseTimeout; ; wait = promiseSilence {
		waiting, cancel := context.WithTimeout(ctx, wait)
		msg, err := answers.NextMsgWithContext(waiting)
		cancel()
		if err != nil || len(msg.Data) == 0 { // nobody is there to answer
			return all
		}
		var s serverAnswer
		if json.Unmarshal(msg.Data, &s) == nil && s.Server.Name != "" {
			all = append(all, s)
		}
	}
}
