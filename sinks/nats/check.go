package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// apiTimeout bounds one question to JetStream's API.
const apiTimeout = 3 * time.Second

// Check implements relay.Checker, over a connection of its own. It asks JetStream's API for the
// streams of the subjects. A principal that may not ask can still deliver, unless a stream must
// be created.
func (s *Sink) Check(ctx context.Context, report func(what, found string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.closing, func() { cancel(errClosed) })()
	conn, err := s.dialer.dial(ctx, s.core)
	if err != nil {
		report("server", err.Error())
		return err
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.wire.cut)()
	c := checkup{sink: s, conn: conn, report: report}
	c.server()
	if s.core {
		report("mode", "core: no stream is asked to keep the events")
	} else {
		c.jetStream(ctx)
	}
	if cause := context.Cause(ctx); cause != nil && c.err == nil {
		c.err = cause
	}
	return c.err
}

// checkup is one call of Check.
type checkup struct {
	sink   *Sink
	conn   *connection
	report func(what, found string)
	err    error // the first error
}

// fail reports an error that a delivery would meet too.
func (c *checkup) fail(what string, err error) {
	c.report(what, err.Error())
	if c.err == nil {
		c.err = fmt.Errorf("%s: %w", what, err)
	}
}

func (c *checkup) server() {
	nc := c.conn.nc
	how := ", in the clear"
	if _, err := nc.TLSConnectionState(); err == nil {
		how = ", over TLS"
	}
	c.report("server", fmt.Sprintf("%s takes the connection%s, version %s", nc.ConnectedAddr(), how, nc.ConnectedServerVersion()))
	c.report("max_payload", fmt.Sprintf("%d bytes for an event with its headers; a larger one goes to the dead letters", nc.MaxPayload()))
}

func (c *checkup) jetStream(ctx context.Context) {
	js, err := jetstream.New(c.conn.nc)
	if err != nil {
		c.fail("jetstream", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 4*apiTimeout)
	defer cancel()
	infos, err := c.streams(ctx, js)
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount), errors.Is(err, natsgo.ErrNoResponders):
		c.fail("jetstream", errors.New("it is not enabled for this account: enable it, or set mode: core"))
	case err != nil && c.sink.stream != "":
		c.fail("jetstream", fmt.Errorf("create_stream needs its API, and it does not answer: %w", c.reason(err)))
	case err != nil:
		c.report("jetstream", fmt.Sprintf("its API may not be asked, so the streams are not known: %v", c.reason(err)))
	default:
		c.report("jetstream", "answers")
		c.take(infos)
	}
}

// reason prefers the server's complaint to the error of a missing answer.
func (c *checkup) reason(err error) error {
	if refusal := c.conn.refusal.Load(); refusal != nil {
		return *refusal
	}
	return err
}

// streams asks for the streams with any of the sink's subjects, and for the one to create.
func (c *checkup) streams(ctx context.Context, js jetstream.JetStream) ([]*jetstream.StreamInfo, error) {
	asking, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if _, err := js.AccountInfo(asking); err != nil {
		return nil, err
	}
	lister := js.ListStreams(ctx, jetstream.WithStreamListSubject(c.sink.subjects))
	var infos []*jetstream.StreamInfo
	for info := range lister.Info() {
		infos = append(infos, info)
	}
	return infos, lister.Err()
}

// take examines the streams that deliveries go to.
func (c *checkup) take(infos []*jetstream.StreamInfo) {
	wanted, whole := c.sink.subjects, false
	named := c.sink.stream == ""
	for _, info := range infos {
		c.stream(info)
		named = named || info.Config.Name == c.sink.stream
		for _, subjects := range info.Config.Subjects {
			whole = whole || covers(subjects, wanted)
		}
	}
	switch {
	case len(infos) == 0 && c.sink.stream != "":
		c.report("stream "+c.sink.stream, "would be created over "+wanted+", as there is none of this name")
	case len(infos) == 0:
		c.fail("subject "+wanted, errors.New("no stream takes it: make one, or set create_stream"))
	case !named:
		c.fail("stream "+c.sink.stream, fmt.Errorf("it cannot be created over %s, as stream %s has a part of it: unset create_stream", wanted, infos[0].Config.Name))
	case !whole:
		c.report("subject "+wanted, "no one stream takes all of it: an event outside is tried again until one does")
	}
}

// stream reports a stream's properties, and what keeps it from storing events.
func (c *checkup) stream(info *jetstream.StreamInfo) {
	what, cfg, state := "stream "+info.Config.Name, &info.Config, &info.State
	c.report(what, fmt.Sprintf("takes %s; %d replicas in %s storage", strings.Join(cfg.Subjects, ", "), cfg.Replicas, strings.ToLower(cfg.Storage.String())))
	for _, weak := range weaknesses(cfg) {
		c.report(what, "warning: "+weak)
	}
	c.report(what, limits(cfg))
	c.report(what, fmt.Sprintf("stores a redelivery within %v once", cfg.Duplicates))
	full := cfg.MaxBytes > 0 && state.Bytes >= uint64(cfg.MaxBytes) || cfg.MaxMsgs > 0 && state.Msgs >= uint64(cfg.MaxMsgs)
	switch {
	case cfg.NoAck:
		c.fail(what, errors.New("it acknowledges nothing: set no_ack to false"))
	case cfg.Sealed:
		c.fail(what, errors.New("it is sealed and takes nothing more"))
	case full && cfg.Discard == jetstream.DiscardNew:
		c.fail(what, errors.New("it is full, and refuses new messages: raise its limits"))
	}
}

// weaknesses returns the ways in which a stream can lose acknowledged events.
func weaknesses(cfg *jetstream.StreamConfig) (all []string) {
	if cfg.Storage == jetstream.MemoryStorage {
		all = append(all, "it is kept in memory: a restart of its servers loses delivered events")
	}
	if cfg.PersistMode == jetstream.AsyncPersistMode {
		all = append(all, "it has persist_mode async: a crash of its server loses the last delivered events")
	}
	return all
}

// limits describes a stream's limits, and what it does when it is full.
func limits(cfg *jetstream.StreamConfig) string {
	var parts []string
	limit := func(set bool, text string) {
		if set {
			parts = append(parts, text)
		}
	}
	limit(cfg.MaxMsgSize > 0, fmt.Sprintf("max message size %d bytes", cfg.MaxMsgSize))
	limit(cfg.MaxBytes > 0, fmt.Sprintf("max bytes %d", cfg.MaxBytes))
	limit(cfg.MaxMsgs > 0, fmt.Sprintf("max messages %d", cfg.MaxMsgs))
	limit(cfg.MaxAge > 0, fmt.Sprintf("max age %v", cfg.MaxAge))
	if parts == nil {
		return "has no limits"
	}
	when := "drops the oldest when it is full"
	if cfg.Discard == jetstream.DiscardNew {
		when = "refuses new messages when it is full, and the sink tries them again"
	}
	return strings.Join(parts, ", ") + "; " + when
}

// covers reports whether filter, perhaps with the wildcards * and >, includes all of
// subject, perhaps with *.
func covers(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		if token == ">" {
			return i < len(s)
		}
		if i == len(s) || token != "*" && token != s[i] {
			return false
		}
	}
	return len(f) == len(s)
}
