package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/relay"
)

const (
	// mostSamples bounds the samples at a time.
	mostSamples = 16
	// sampledEvents bounds the events that all samples together look at in a second. So they cost
	// the relay the same, however many events pass.
	sampledEvents = 1000
	// sampleEvery is the time between two looks of a sample.
	sampleEvery = 500 * time.Millisecond
	// newestRecords and newestEvents bound what is looked at for the newest events, and the records
	// of each look of a sample.
	newestRecords, newestEvents = 64, 5000
	// lookLasts bounds the time of a sample's look, apart from its first event and one more, since an
	// expression may take long. After a look of more than lookBriefly a sample rests, so that all of them together use a
	// quarter of one processor.
	lookLasts, lookBriefly = 250 * time.Millisecond, 50 * time.Millisecond
)

// look is how much a tap may still look at, going backwards from the newest record.
type look struct {
	records, events int
	shown           int   // events to be shown
	bytes           int64 // of those
	// lasts is its time after its first event, which is looked at however late; 0: all that it needs.
	lasts time.Duration
	until time.Time // the end of that
}

func (l *look) spent() bool {
	return l.records <= 0 || l.events <= 0 || l.shown <= 0 || l.bytes <= 0 || l.late()
}

func (l *look) late() bool { return !l.until.IsZero() && time.Now().After(l.until) }

// begun notes that an event was looked at.
func (l *look) begun() {
	if l.lasts > 0 && l.until.IsZero() {
		l.until = time.Now().Add(l.lasts)
	}
}

// goesOn reports whether another event of a record is looked at.
func (l *look) goesOn(ctx context.Context) bool { return l.events > 0 && !l.late() && ctx.Err() == nil }

// sampled is what one of so many samples looks at.
func sampled(samples, shown int) look {
	return look{newestRecords, int(sampledEvents*sampleEvery/time.Second) / max(1, samples), shown, tapBytes / mostSamples, lookLasts, time.Time{}}
}

// rest is how long a sample rests after its last look.
func (t *tap) rest() time.Duration {
	if t.took < lookBriefly {
		return 0
	}
	return 3 * t.took * time.Duration(len(t.samples))
}

// newest sends the newest events, the oldest of them first.
func (t *tap) newest(ctx context.Context, most int, out *stream) error {
	if err := t.show(ctx, make([]uint64, len(t.logs)), look{newestRecords, newestEvents, most, tapBytes, lookLasts, time.Time{}}, out); err != nil {
		return err
	}
	t.counts.Dropped, t.counts.SkippedRecords = 0, 0 // the older ones are no loss
	return cmp.Or(t.tell(out), retry.Sleep(ctx, t.rest()))
}

// follow sends the events that pass until ctx ends, as far as each look goes. While its client does
// not read, it reads nothing either.
func (t *tap) follow(ctx context.Context, every time.Duration, most func() look, out *stream) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		first := slices.Clone(t.next)
		for i, log := range t.logs {
			_, last, err := log.Ends(ctx)
			if err != nil {
				return err
			}
			first[i], t.next[i] = min(first[i], last+1), last+1 // the log may have gone back
		}
		if err := t.show(ctx, first, most(), out); err != nil {
			return err
		}
		if err := cmp.Or(t.tell(out), retry.Sleep(ctx, t.rest())); err != nil {
			return err
		}
	}
}

// show sends the newest events of the records from first up to next of each log. Each log has an
// equal part of the look.
func (t *tap) show(ctx context.Context, first []uint64, l look, out *stream) error {
	var all []shownEvent
	began := time.Now()
	l.events, l.lasts = max(1, l.events/len(t.logs)), l.lasts/time.Duration(len(t.logs))
	for i := range t.logs {
		these, err := t.back(ctx, i, max(1, first[i]), l)
		if err != nil {
			return err
		}
		all = append(all, these...)
	}
	t.took = time.Since(began)
	slices.SortStableFunc(all, func(a, b shownEvent) int { return a.received.Compare(b.received) })
	unseen := max(0, len(all)-l.shown)
	t.counts.Shown, t.counts.Dropped = t.counts.Shown+int64(len(all)-unseen), t.counts.Dropped+int64(unseen)
	for _, w := range all[unseen:] {
		if err := out.put(w.Tapped); err != nil {
			return err
		}
	}
	return nil
}

// back reads a log record by record backwards, down to the record first or until the look is spent,
// and counts what it passes over.
func (t *tap) back(ctx context.Context, i int, first uint64, l look) (all []shownEvent, err error) {
	at := t.next[i] - 1
	for ; at >= first && !l.spent(); at-- {
		l.records--
		var these []shownEvent
		err := t.logs[i].Records(ctx, at, at+1, func(_ uint64, data []byte) bool {
			these = t.lookAt(ctx, data, &l)
			return ctx.Err() == nil
		})
		if err != nil {
			return nil, err
		}
		all = append(these, all...)
	}
	if at >= first {
		t.counts.SkippedRecords += int64(at - first + 1)
	}
	return all, nil
}

// lookAt gives the events of a record to be shown, as far as the look goes. Live delivery tells of a
// damaged record.
func (t *tap) lookAt(ctx context.Context, data []byte, l *look) (these []shownEvent) {
	unseen := int64(record.Count(data))
	r, err := record.Open(data)
	for err == nil && !r.Done() && l.goesOn(ctx) {
		var events []relay.Event
		events, _, err = r.Next(nil, record.PieceBytes)
		for e := 0; e < len(events) && l.goesOn(ctx); e++ {
			l.events, unseen = l.events-1, unseen-1
			w, count := t.shown(&events[e])
			l.begun()
			if count != nil {
				*count++
				continue
			}
			these, l.bytes = append(these, w), l.bytes-w.size
		}
		for ; len(these) > l.shown || len(these) > 1 && l.bytes < 0; unseen++ { // one is shown, however large
			l.bytes += these[0].size
			these = these[1:]
		}
	}
	l.shown -= len(these)
	t.counts.Dropped += unseen
	return these
}
