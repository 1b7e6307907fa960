package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/semver"

	"github.com/auditrelay/auditrelay/config"
)

// Promise is the answer of the external servers to one question about the durability of
// acknowledged messages.
type Promise struct {
	What    string `json:"what"`
	Found   string `json:"found"`
	Verdict string `json:"verdict"` // one of the constants below
}

// Verdicts on a promise.
const (
	Kept   = "ok"
	Weak   = "warning" // a fault may lose acknowledged events
	Broken = "refused" // nothing acknowledged would be durable, so the relay does not start
)

const (
	// promiseTimeout bounds one question.
	promiseTimeout = 3 * time.Second
	// After promiseSilence without another answer, all servers have answered.
	promiseSilence = 500 * time.Millisecond
	// replicasWanted lose nothing, and go on, without one of them.
	replicasWanted = 3
)

// Check asks the servers of cfg for their promises. cfg must have its defaults. Check makes
// no stream and writes nothing. The error says why it could not ask.
func Check(ctx context.Context, cfg config.Journal) ([]Promise, error) {
	opts, err := dialOptions(ctx, cfg)
	if err != nil {
		return nil, err
	}
	js, err := connect(cfg.URL, append(opts, quiet(slog.New(slog.DiscardHandler)), nats.MaxReconnects(0))...)
	if err != nil {
		return nil, err
	}
	defer js.Conn().Close()
	return askPromises(ctx, js, cfg)
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

// checkPromises refuses servers that acknowledge a message before it is durable, and warns
// of those that may lose it later.
func (s *Store) checkPromises(ctx context.Context) error {
	promises, err := askPromises(ctx, s.js, s.cfg.Journal)
	if err != nil {
		return err
	}
	for _, p := range promises {
		if p.Verdict == Weak {
			s.log.Warn("the journal's servers may lose what they acknowledge", "what", p.What, "found", p.Found)
		}
	}
	return Refusal(promises)
}

// asked is one round of questions.
type asked struct {
	js       jetstream.JetStream
	cfg      config.Journal
	promises []Promise
}

func (a *asked) found(verdict, what, format string, args ...any) {
	a.promises = append(a.promises, Promise{What: what, Found: fmt.Sprintf(format, args...), Verdict: verdict})
}

func askPromises(ctx context.Context, js jetstream.JetStream, cfg config.Journal) ([]Promise, error) {
	a, nc := &asked{js: js, cfg: cfg}, js.Conn()
	a.server(nc.ConnectedServerName(), nc.ConnectedServerVersion(), nc.ConnectedClusterName())
	a.replicas()
	a.account(ctx)
	if err := a.streams(ctx); err != nil {
		return nil, err
	}
	a.sync(ctx)
	return a.promises, nil
}

// oldestServer is the first nats-server that the relay is tested with, and the first that judges the
// conditions of a batch rightly: older ones may refuse a batch whose conditions all hold (nats-server
// issue 8376).
const oldestServer = "v2.15.2"

// tooOld is false for a version that is not known.
func tooOld(version string) bool {
	return semver.IsValid("v"+version) && semver.Compare("v"+version, oldestServer) < 0
}

// server refuses versions that are too old.
func (a *asked) server(name, version, cluster string) {
	if tooOld(version) {
		a.found(Broken, "server", "%s has version %s, which may judge the conditions of a write wrongly (nats-server issue 8376): use nats-server %s or later",
			name, version, oldestServer[1:])
		return
	}
	a.found(Kept, "server", "%s, version %s, cluster %q", name, version, cluster)
}

func (a *asked) replicas() {
	switch n := a.cfg.Replicas; {
	case n == 0: // the streams keep theirs
	case n == 1:
		a.found(Weak, "journal.replicas", "1: there is one copy, so that acknowledged events are lost with its disk; a cluster of three servers and replicas: 3 keep them")
	case n < replicasWanted:
		a.found(Weak, "journal.replicas", "%d: the loss of one server stops ingest; 3 go on without one", n)
	default:
		a.found(Kept, "journal.replicas", "%d", n)
	}
}

// account compares the account's limits with the budget.
func (a *asked) account(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, promiseTimeout)
	defer cancel()
	info, err := a.js.AccountInfo(ctx)
	if err != nil {
		a.found(Weak, "account", "its limits could not be told: %v", err)
		return
	}
	limits := info.Limits
	if tier, ok := info.Tiers[fmt.Sprintf("R%d", a.cfg.Replicas)]; ok {
		limits = tier.Limits
	}
	wanted := int64(a.cfg.MaxBytes) * int64(max(a.cfg.Shards, 1))
	switch {
	case limits.MaxStore < 0:
		a.found(Kept, "account", "has no limit of storage")
	case limits.MaxStore < wanted:
		a.found(Weak, "account", "may store %d bytes, less than journal.max_bytes of all shards, which is %d: pushes are refused before the budget is spent", limits.MaxStore, wanted)
	default:
		a.found(Kept, "account", "may store %d bytes", limits.MaxStore)
	}
}

// streams looks at the relay's streams, as far as they exist. Each is asked for by name, as
// a list leaves out streams without a leader.
func (a *asked) streams(ctx context.Context) error {
	some := false
	names := []string{tableName, "EVENTS", "DEADLETTERS", "QUARANTINE", "TRAIL-ENTRIES", "TRAIL-CHECKPOINTS"}
	for shard := 1; shard < a.cfg.Shards; shard++ {
		names = append(names, fmt.Sprintf("EVENTS_%d", shard))
	}
	for _, name := range names {
		stream, err := a.js.Stream(ctx, a.cfg.StreamPrefix+"_"+name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("ask for stream %s_%s: %w", a.cfg.StreamPrefix, name, err)
		}
		some = true
		a.stream(stream.CachedInfo())
	}
	if !some {
		a.found(Kept, "streams", "there are none of prefix %s; the relay makes them", a.cfg.StreamPrefix)
	}
	return nil
}

// makeAgain is the remedy for a setting that no update can change.
const makeAgain = "this cannot be changed: let every sink take what the stream holds, stop the relay, delete the stream, and start the relay, which makes it again"

func (a *asked) stream(info *jetstream.StreamInfo) {
	what, before := "stream "+info.Config.Name, len(a.promises)
	if info.Config.PersistMode == jetstream.AsyncPersistMode {
		a.found(Broken, what, "has persist_mode async: its server acknowledges before anything is on disk, whatever sync_interval says; %s", makeAgain)
	}
	if info.Config.Storage != jetstream.FileStorage {
		a.found(Broken, what, "is kept in memory: a restart loses it; %s", makeAgain)
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

// setSync says how to make servers sync.
const setSync = "set 'jetstream { sync_interval: always }' on every server: the default syncs every two minutes, so that a power cut loses what was acknowledged in between"

// sync asks every server for its sync_interval. Usually only the system account may ask.
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

// serverAnswer is the part of a server's answer about its syncs.
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

// askServers asks all servers for their JetStream settings, and returns their answers:
// none if these credentials may not ask.
func (a *asked) askServers(ctx context.Context) (all []serverAnswer) {
	nc := a.js.Conn()
	inbox := nc.NewRespInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil
	}
	defer func() { _ = answers.Unsubscribe() }() // on an error it ends with the connection
	if err := nc.PublishRequest("$SYS.REQ.SERVER.PING.JSZ", inbox, []byte(`{"config":true}`)); err != nil {
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
