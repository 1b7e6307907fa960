package streamserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/durable"
)

// ErrMoved refuses a configuration with another journal than before, as some sink still
// lacks events of the old one.
var ErrMoved = errors.New("the configuration names another journal, and the one before is not drained")

// homesFile lists the places of the relay's journals, in the data directory.
const homesFile = "journals.json"

// Home is the place of a journal: in the data directory, or in the cluster at URL, in
// streams with names of this prefix.
type Home struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"stream_prefix"`
}

func (h Home) String() string {
	if h.URL == "" {
		return "stream_prefix " + h.Prefix + " in the data directory"
	}
	return "stream_prefix " + h.Prefix + " at " + h.URL
}

// LetGo is a journal given up by a person, with its content at the time.
type LetGo struct {
	Home
	Left
	Time time.Time `json:"time"`
}

// Left is the undelivered content of a journal.
type Left struct {
	// Events are undelivered to the sink furthest behind. Without any sink's position it is
	// all events.
	Events uint64 `json:"events"`
	// DeadLetters are still kept there.
	DeadLetters uint64 `json:"dead_letters"`
	// Doubt says why there may be more.
	Doubt string `json:"doubt,omitempty"`
}

func (l Left) none() bool { return l == Left{} }

func (l Left) String() string {
	text := fmt.Sprintf("%d undelivered events and %d dead letters", l.Events, l.DeadLetters)
	if l.Doubt != "" {
		text += " or more: " + l.Doubt
	}
	return text
}

// homes is the content of homesFile.
type homes struct {
	// Used are the journals with possibly undelivered events: the current one.
	Used []Home `json:"used"`
	// Drained are journals in the data directory without undelivered events.
	Drained []Home `json:"drained,omitempty"`
	// Embedded is the prefix of the watermarks' journal.
	Embedded string `json:"embedded,omitempty"`
	// LetGo are journals given up by a person.
	LetGo []LetGo `json:"let_go,omitempty"`
}

// readHomes returns nothing for a missing or damaged file: the search by folders finds
// the journals in the data directory too.
func readHomes(dataDir string, log *slog.Logger) homes {
	var h homes
	data, err := os.ReadFile(filepath.Join(dataDir, homesFile))
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("where the journal was kept before cannot be read; only the data directory is searched", "error", err)
		return homes{}
	}
	return h
}

func (h *homes) write(dataDir string) error {
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", homesFile, err)
	}
	return durable.WriteFile(filepath.Join(dataDir, homesFile), append(data, '\n'))
}

// homesIn lists the journals in a data directory.
func homesIn(dataDir string) ([]Home, error) {
	names, err := datadir.Streams(dataDir)
	if err != nil {
		return nil, fmt.Errorf("list the journals: %w", err)
	}
	var all []Home
	for _, name := range names {
		if prefix, ours := strings.CutSuffix(name, Layout("").Events); ours {
			all = append(all, Home{Prefix: prefix})
		}
	}
	return all, nil
}

// checkMoved refuses to leave an undrained journal behind, and then notes cfg's as the
// current one. The caller holds the lock on the data directory. After a crash before the
// note is written, the next start looks again.
func checkMoved(ctx context.Context, dataDir string, cfg config.Journal, log *slog.Logger) ([]LetGo, error) {
	h := readHomes(dataDir, log)
	current := Home{cfg.URL, cfg.StreamPrefix}
	found, err := homesIn(dataDir)
	if err != nil {
		return nil, err
	}
	for _, old := range slices.Concat(h.Used, found) {
		if old == current || h.gaveUp(old) || slices.Contains(h.Drained, old) || isSameCluster(old, current) {
			continue
		}
		left, err := leftIn(ctx, dataDir, old, h, cfg)
		if err != nil {
			return nil, err
		}
		if !left.none() {
			return nil, fmt.Errorf("%w: %s holds %v, which would never be delivered; start with those settings again until 'auditrelay sinks list' shows nothing pending, or give them up with 'auditrelay journal let-go'", ErrMoved, old, left)
		}
		log.Info("the journal before is drained", "journal", old.String())
	}
	next, err := h.settle(dataDir, current, found)
	return next.LetGo, err
}

// isSameCluster reports whether only the lists of servers differ, with at least one node
// in both.
func isSameCluster(a, b Home) bool {
	if a.URL == "" || b.URL == "" || a.Prefix != b.Prefix {
		return false
	}
	return slices.ContainsFunc(strings.Split(a.URL, ","), func(node string) bool {
		return slices.Contains(strings.Split(b.URL, ","), node)
	})
}

// settle notes the current journal; all others are drained or let go. It first removes
// the watermarks of another embedded journal, as by those this one would have lost its
// end.
func (h *homes) settle(dataDir string, current Home, found []Home) (next homes, err error) {
	next = homes{Used: []Home{current}, Embedded: h.Embedded}
	for _, l := range h.LetGo {
		if l.Home != current {
			next.LetGo = append(next.LetGo, l)
		}
	}
	for _, old := range slices.Concat(h.Drained, h.Used, found) {
		if old != current && old.URL == "" && !slices.Contains(next.Drained, old) && !h.gaveUp(old) {
			next.Drained = append(next.Drained, old)
		}
	}
	if current.URL == "" {
		isNew := !slices.Contains(found, current) && len(found) > 0
		if h.Embedded != "" && h.Embedded != current.Prefix || h.Embedded == "" && isNew {
			if err := datadir.RemoveWatermarks(dataDir); err != nil {
				return next, err
			}
		}
		next.Embedded = current.Prefix
	}
	if h.equal(&next) {
		return next, nil
	}
	return next, next.write(dataDir)
}

func (h *homes) gaveUp(home Home) bool {
	return slices.ContainsFunc(h.LetGo, func(l LetGo) bool { return l.Home == home })
}

func (h *homes) equal(o *homes) bool {
	return slices.Equal(h.Used, o.Used) && slices.Equal(h.Drained, o.Drained) && h.Embedded == o.Embedded && slices.Equal(h.LetGo, o.LetGo)
}

// LetJournalGo gives up the journal at home, no longer named in the configuration: a
// relay may start without it. Its files or streams stay. ask sees the loss before, and an
// error of ask stops it. No relay may run on the data directory.
func LetJournalGo(ctx context.Context, dataDir string, cfg config.Journal, home Home, log *slog.Logger, ask func(Left) error) (err error) {
	lock, err := durable.Lock(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	h := readHomes(dataDir, log)
	found, err := homesIn(dataDir)
	if err != nil {
		return err
	}
	known := slices.Concat(h.Used, found)
	switch {
	case home == Home{cfg.URL, cfg.StreamPrefix}:
		return fmt.Errorf("%s is the journal that the configuration names: change the configuration first", home)
	case !slices.Contains(known, home):
		return fmt.Errorf("the relay never kept a journal with %s; it knows %v", home, known)
	}
	left, err := leftIn(ctx, dataDir, home, h, cfg)
	if err != nil {
		return err
	}
	if err := ask(left); err != nil {
		return err
	}
	h.LetGo = append(h.LetGo, LetGo{Home: home, Left: left, Time: time.Now().UTC()})
	return h.write(dataDir)
}

// leftIn looks for the undelivered content of a journal.
func leftIn(ctx context.Context, dataDir string, old Home, h homes, cfg config.Journal) (Left, error) {
	if old.URL != "" {
		return leftInCluster(ctx, old, cfg), nil
	}
	marks := datadir.ReadWatermarks(dataDir)
	if h.Embedded != "" && h.Embedded != old.Prefix {
		marks = nil // they belong to another journal
	}
	layout := Layout(old.Prefix)
	in, err := datadir.New(dataDir, layout, marks).Inspect(ctx, nil)
	if err != nil {
		return Left{}, fmt.Errorf("look into the journal with %s: %w", old, err)
	}
	return leftOf(in, layout), nil
}

// leftOf sums up the undelivered content.
func leftOf(in *datadir.Inspection, layout datadir.Layout) (left Left) {
	for _, s := range in.Streams {
		switch {
		case s.Name == layout.DeadLetters:
			left.DeadLetters = s.Records
		case s.Name == layout.Events && len(in.Sinks) == 0:
			left.Events = s.Events
		}
	}
	for _, sink := range in.Sinks {
		left.Events = max(left.Events, sink.LagEvents)
	}
	return left
}
