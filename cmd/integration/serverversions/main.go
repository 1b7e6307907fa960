// Command serverversions fills a data directory with the nats-server it was built with,
// or checks every record of another version's directory. It is a module of its own, to
// build with other versions than the relay's: run.sh beside it does so, and tries an
// upgrade and a roll-back.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/deadletters"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/record"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "serverversions, with nats-server %s: %v\n", server.VERSION, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 {
		return errors.New("usage: serverversions fill DIR TO [kill] | check DIR TO")
	}
	to, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("TO must be a number of events: %w", err)
	}
	if args[0] == "check" {
		return check(ctx, args[1], to)
	}
	return fill(ctx, args[1], to, len(args) > 3)
}

// sink is the sink with a position.
const sink = "steady"

// opened is a journal on a data directory.
type opened struct {
	*journal.Journal
	letters *deadletters.Store
	conn    *streamserver.Conn
}

func open(ctx context.Context, dir string, budget config.Size) (*opened, error) {
	cfg := config.Journal{StreamPrefix: "VERSIONS", MaxBytes: budget, ReplayWindow: time.Hour, Replicas: 1, DeadLetterBytes: 1 << 30}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	conn, err := streamserver.Connect(ctx, dir, cfg, log)
	if err != nil {
		return nil, err
	}
	j, err := journal.Open(ctx, conn, cfg, journal.Options{Logger: log, Registerer: prometheus.NewRegistry(), Sinks: []string{sink}})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	letters, err := deadletters.Open(ctx, conn, cfg, log, prometheus.NewRegistry())
	if err != nil {
		j.Close()
		return nil, errors.Join(err, conn.Close())
	}
	return &opened{j, letters, conn}, nil
}

func (o *opened) close() error {
	o.Close()
	return o.conn.Close()
}

const (
	budget = 1 << 30
	// smallBudget makes the server choose small blocks. It keeps their size later.
	smallBudget = 100_000
)

// behind is the number of events the sink leaves unacknowledged.
const behind = 10

// fill appends the missing events up to to, each as a record of its own, and a dead
// letter for each tenth. The sink acknowledges all except the last ten. With kill the
// process ends like a killed one: the server's index is older than its blocks.
func fill(ctx context.Context, dir string, to int, kill bool) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		small, err := open(ctx, dir, smallBudget)
		if err != nil {
			return err
		}
		if err := small.close(); err != nil {
			return err
		}
	}
	o, err := open(ctx, dir, budget)
	if err != nil {
		return err
	}
	from := int(o.Inherited()) // one record an event
	for i := from; i < to; i++ {
		var b record.Batch
		e := event(i)
		b.AddEvent(&e)
		if err := o.Append(ctx, &b); err != nil {
			return fmt.Errorf("append event %d: %w", i, err)
		}
		if i%10 == 0 {
			if err := o.letters.Reject(ctx, sink, []relay.Rejection{{Event: e, Reason: "refused", Attempts: 1}}); err != nil {
				return err
			}
		}
	}
	if _, err := o.read(ctx, sink, to-behind); err != nil {
		return err
	}
	fmt.Printf("nats-server %s: appended %d events to %d\n", server.VERSION, to-from, from)
	if kill {
		os.Exit(0)
	}
	return o.close()
}

// read returns a sink's unacknowledged events before to, and acknowledges them.
func (o *opened) read(ctx context.Context, sink string, to int) ([]relay.Event, error) {
	s, err := o.Source(ctx, sink, relay.BatchLimit{Events: 1, Bytes: 1})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var got []relay.Event
	for len(got) == 0 || got[len(got)-1].ID != id(to-1) {
		b, err := s.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("read behind %d events for sink %s: %w", len(got), sink, err)
		}
		for i := range b.Events {
			e := b.Events[i]
			e.Body = bytes.Clone(e.Body)
			got = append(got, e)
		}
		if err := s.Ack(ctx, b.Position); err != nil {
			return nil, err
		}
	}
	return got, nil
}

// check compares each event, each dead letter and the sink's position with those of fill.
// It fails if the start found damage.
func check(ctx context.Context, dir string, to int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	o, err := open(ctx, dir, budget)
	if err != nil {
		return err
	}
	if len(o.conn.Mended) > 0 {
		return fmt.Errorf("the start found damage: %+v", o.conn.Mended)
	}
	named, err := o.Losses.All(ctx)
	if err != nil || len(named) > 0 {
		return fmt.Errorf("the quarantine names %+v (%w)", named, err)
	}
	all, err := o.read(ctx, fmt.Sprintf("all-%d", time.Now().UnixNano()), to)
	if err != nil {
		return err
	}
	for i := range all {
		if want := event(i); all[i].ID != want.ID || !bytes.Equal(all[i].Body, want.Body) {
			return fmt.Errorf("event %d is %s, with a body of %d bytes", i, all[i].ID, len(all[i].Body))
		}
	}
	rest, err := o.read(ctx, sink, to)
	if err != nil {
		return err
	}
	if rest[0].ID != id(to-behind) {
		return fmt.Errorf("the sink's position is before %s, and was before %s", rest[0].ID, id(to-behind))
	}
	letters := 0
	if err := o.letters.Find(ctx, deadletters.Filter{}, func(deadletters.Letter) bool { letters++; return true }); err != nil {
		return err
	}
	if want := (to + 9) / 10; letters != want {
		return fmt.Errorf("%d dead letters, of %d", letters, want)
	}
	fmt.Printf("nats-server %s: checked %d events, %d dead letters and a position\n", server.VERSION, len(all), letters)
	return o.close()
}

func id(i int) string { return "event-" + strconv.Itoa(i) }

// event makes an incompressible event.
func event(i int) relay.Event {
	body := make([]byte, 4000)
	random := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8)})
	_, _ = random.Read(body)
	return relay.Event{
		ID: id(i), Source: "/projects/p/environments/e", Type: "event_log.LOGIN", Project: "p", Environment: "e",
		Time: time.Unix(int64(i), 0), Received: time.Unix(int64(i), 0), ContentType: "text/plain", Body: body,
	}
}
