package app

import (
	"cmp"
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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/deadletters"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// ErrMoved refuses a configuration with another journal than before, while some sink lacks
// events of the old one, or after it was moved from there.
var ErrMoved = errors.New("the configuration does not name the journal that the relay used before")

// homeFile says in the data directory where the relay keeps its journal.
const homeFile = "journal.json"

// oldClusterPatience bounds the look into the cluster of an old configuration.
const oldClusterPatience = 10 * time.Second

// Home is where a journal is kept: in the data directory, or in the cluster at URL, in
// streams with names of this prefix.
type Home struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"stream_prefix,omitempty"`
}

// homeOf is the home of a configuration. On disk the prefix means nothing.
func homeOf(cfg config.Journal) Home {
	if cfg.URL == "" {
		return Home{}
	}
	return Home{cfg.URL, cfg.StreamPrefix}
}

func (h Home) String() string {
	if h.URL == "" {
		return "the journal in the data directory"
	}
	return "the journal with stream_prefix " + h.Prefix + " at " + h.URL
}

// diskFlag stands for the data directory in `auditrelay journal move --to`.
const diskFlag = "disk"

// HomeAt is the home that --to names. It refuses whatever could not be journal.url, such as an address
// with a password, before anything is noted of it.
func HomeAt(to string, cfg *config.Config) (Home, error) {
	if to == diskFlag {
		return Home{}, nil
	}
	at := *cfg
	at.Journal.URL = to
	var wrong config.Errors
	errors.As(at.Validate(), &wrong)
	i := slices.IndexFunc(wrong, func(p config.Problem) bool { return p.Field == "journal.url" })
	switch {
	case to == "":
		return Home{}, fmt.Errorf("--to is empty: it has to be a journal.url, or %q for the data directory", diskFlag)
	case i >= 0:
		return Home{}, fmt.Errorf("--to is neither %q nor a journal.url, which %s", diskFlag, wrong[i].Reason)
	}
	return Home{to, cfg.Journal.StreamPrefix}, nil
}

// flag is what --to has to be.
func (h Home) flag() string { return cmp.Or(h.URL, diskFlag) }

// setting is what the configuration has to say.
func (h Home) setting() string {
	if h.URL == "" {
		return "no journal.url"
	}
	return "journal.url to " + h.URL
}

// isSame reports whether two homes are one: the lists of servers may differ, with at least
// one node in both.
func (h Home) isSame(o Home) bool {
	if h.URL == "" || o.URL == "" || h.Prefix != o.Prefix {
		return h == o
	}
	return slices.ContainsFunc(strings.Split(h.URL, ","), func(node string) bool {
		return slices.Contains(strings.Split(o.URL, ","), node)
	})
}

// LetGo is a journal given up by a person, with its content at the time.
type LetGo struct {
	Home
	Left
	Time time.Time `json:"time"`
	// Person ran the command.
	Person audit.Person `json:"person,omitzero"`
}

// Left is the undelivered content of a journal.
type Left struct {
	// Events are undelivered to the sink furthest back. Without any sink it is all events.
	Events uint64 `json:"events"`
	// DeadLetters are still kept there.
	DeadLetters uint64 `json:"dead_letters"`
	// Doubt says why there may be more.
	Doubt string `json:"doubt,omitempty"`
}

func (l Left) String() string {
	text := fmt.Sprintf("%d undelivered events and %d dead letters", l.Events, l.DeadLetters)
	if l.Doubt != "" {
		text += " or more: " + l.Doubt
	}
	return text
}

// homes is the content of homeFile.
type homes struct {
	// Used is where the journal was kept last; nil before the first start.
	Used *Home `json:"used,omitempty"`
	// LetGo are journals given up by a person.
	LetGo []LetGo `json:"let_go,omitempty"`
	// Moved is the newest move of the journal.
	Moved *Moved `json:"moved,omitempty"`
	// Logs are those of the store in the data directory, while the journal is kept there. If
	// the store is missing, they were lost.
	Logs []string `json:"logs,omitempty"`
}

// readHomes reads the note. Without one, or with a damaged one, the journal in the data
// directory may be the last one, where there is one.
func readHomes(dataDir string, log *slog.Logger) (h homes) {
	data, err := durable.ReadFile(filepath.Join(dataDir, homeFile))
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("where the journal was kept before cannot be read; only the data directory is searched", "error", err)
		h = homes{}
	}
	if _, err := os.Stat(filepath.Join(dataDir, StoreDir)); h.Used == nil && err == nil {
		h.Used = &Home{}
	}
	return h
}

func (h *homes) write(dataDir string) error {
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", homeFile, err)
	}
	return durable.WriteFile(filepath.Join(dataDir, homeFile), append(data, '\n'))
}

func (h *homes) gaveUp(home Home) bool {
	return slices.ContainsFunc(h.LetGo, func(l LetGo) bool { return l.Home == home })
}

// settleHome reads where the journal was kept, and refuses to leave an undrained one.
func (r *process) settleHome(ctx context.Context) error {
	r.homes = readHomes(r.cfg().DataDir, r.log)
	h, now := &r.homes, homeOf(r.cfg().Journal)
	if old := h.Used; old != nil && !old.isSame(now) && !h.gaveUp(*old) {
		if m := h.Moved; m != nil && m.To.isSame(*old) && m.From.isSame(now) {
			return fmt.Errorf("%w: %s was moved to %s at %s; set %s, or move it back with 'auditrelay journal move --to %s'",
				ErrMoved, m.From, m.To, m.Time.Format(time.RFC3339), m.To.setting(), now.flag())
		}
		left, err := leftIn(ctx, r.cfg(), *old, r.log)
		if err != nil {
			return err
		}
		if left != (Left{}) {
			return fmt.Errorf("%w: %s holds %v, which would never be delivered; move everything with 'auditrelay journal move --to %s', start with those settings again until 'auditrelay sinks list' shows nothing pending, or give them up with 'auditrelay journal let-go'", ErrMoved, old, left, now.flag())
		}
		r.log.Info("the journal before is drained", "journal", old.String())
	}
	return nil
}

// noteHome notes where the journal is kept, once its store is open and before it takes anything: a
// mistyped address is not noted. After a crash before the note is written, the next start looks again.
func (r *process) noteHome() error {
	h, now := &r.homes, homeOf(r.cfg().Journal)
	known := h.Used != nil && *h.Used == now && !h.gaveUp(now)
	h.Used = &now
	h.LetGo = slices.DeleteFunc(h.LetGo, func(l LetGo) bool { return l.Home == now })
	if known {
		return nil
	}
	return h.write(r.cfg().DataDir)
}

// noteLogs notes the logs of the store in the data directory, once it has them all. A crash
// before the note leaves the next start to write it, and so does a full disk.
func (r *process) noteLogs(ctx context.Context) error {
	var logs []string
	if r.cfg().Journal.URL == "" {
		var err error
		if logs, err = r.store.Logs(ctx); err != nil {
			return fmt.Errorf("list the logs of the store: %w", err)
		}
	}
	if slices.Equal(r.homes.Logs, logs) {
		return nil
	}
	r.homes.Logs = logs
	if err := r.homes.write(r.cfg().DataDir); err != nil {
		r.log.Warn("noting which logs the store has failed; the next start tries it again", "error", err)
	}
	return nil
}

// LetJournalGo gives up the journal at home, which the configuration no longer names: a
// relay may start without it. Its files or streams stay. ask sees the loss before, and an
// error of ask stops it. No relay may run on the data directory.
func LetJournalGo(ctx context.Context, cfg *config.Config, home Home, by audit.Person, log *slog.Logger, ask func(Left) error) (err error) {
	lock, err := durable.Lock(cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	h := readHomes(cfg.DataDir, log)
	switch {
	case home == homeOf(cfg.Journal):
		return fmt.Errorf("%s is the one that the configuration names: change the configuration first", home)
	case h.Used == nil:
		return fmt.Errorf("the relay never kept %s", home)
	case *h.Used != home:
		return fmt.Errorf("the relay does not keep %s; it keeps %s", home, h.Used)
	}
	left, err := leftIn(ctx, cfg, home, log)
	if err != nil {
		return err
	}
	if err := ask(left); err != nil {
		return err
	}
	h.LetGo = append(h.LetGo, LetGo{Home: home, Left: left, Time: time.Now().UTC(), Person: by})
	return h.write(cfg.DataDir)
}

// leftIn looks for the undelivered content of a journal, with the present credentials. A
// failed look into a cluster is a doubt, not an error: a person can still let it go.
func leftIn(ctx context.Context, cfg *config.Config, home Home, log *slog.Logger) (Left, error) {
	if home.URL != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, oldClusterPatience)
		defer cancel()
	}
	left, err := look(ctx, configAt(cfg, home), log)
	if err != nil && home.URL != "" {
		left.Doubt, err = fmt.Sprintf("it could not be looked into: %v", err), nil
	}
	if err != nil {
		err = fmt.Errorf("look into %s: %w", home, err)
	}
	return left, err
}

// configAt is a configuration with the journal in another home. The number of replicas there stays
// as it is.
func configAt(cfg *config.Config, home Home) *config.Config {
	at := *cfg
	if homeOf(cfg.Journal) == home {
		return &at
	}
	at.Journal.URL, at.Journal.Replicas = home.URL, 0
	if home.URL != "" {
		at.Journal.StreamPrefix = home.Prefix
	}
	return &at
}

func look(ctx context.Context, cfg *config.Config, log *slog.Logger) (left Left, err error) {
	s, err := openStore(ctx, cfg, StoreOptions{Logger: log}, readHomes(cfg.DataDir, log).Logs)
	if err != nil {
		return left, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if left.Events, err = journal.Undelivered(ctx, s, cfg.Journal); err != nil {
		return left, err
	}
	left.DeadLetters, err = lettersIn(ctx, s, log)
	return left, err
}

func lettersIn(ctx context.Context, s store.Store, log *slog.Logger) (n uint64, err error) {
	names, err := journal.OpenQuarantine(ctx, s, journal.QuarantineOptions{Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, names.Close()) }()
	letters, err := deadletters.Open(ctx, deadletters.Options{Store: s, Quarantine: names, Logger: log, Registerer: prometheus.NewRegistry()})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, letters.Close()) }()
	all, err := letters.Usage(ctx)
	for _, usage := range all {
		n += usage.Letters
	}
	return n, err
}
