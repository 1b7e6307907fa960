package health

import (
	"maps"
	"slices"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/ingest/credentials"
	"github.com/auditrelay/auditrelay/internal/workspace/streaming"
)

// newWatch makes the watch of an environment, which is to be configured.
func (k *Keeper) newWatch(name credentials.Environment) *watch {
	return &watch{
		page: k.options.Book.Of(name), settle: k.options.Settle, refused: map[string]*hour{},
		Evidence: Evidence{Environment: name, Model: &Rhythm{}},
	}
}

// configure gives a watch its configuration. mu is held, or nobody else has the keeper yet.
func (k *Keeper) configure(w *watch, e *config.Environment) {
	w.env, w.Asked = *e, e.Stream.Asked()
	w.Here = e.Stream != nil && e.Stream.Relay != nil || len(e.Credentials) > 0 || w.Environment == k.options.Anonymous
	w.Declared.Interval = k.options.Interval
	w.Declared.Watched = k.options.Declared != nil && (e.Stream != nil || !e.SkipSettings) // as internal/workspace/streaming does
}

// Reconfigure replaces Options.Environments, Options.Interval and Options.Declared. What is known of
// an environment stays known, also of one that is gone, in case it comes back.
func (k *Keeper) Reconfigure(environments []config.Environment, interval time.Duration, declared func() []streaming.Health) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options.Environments, k.options.Interval, k.options.Declared = environments, interval, declared
	now, before := time.Now(), k.byName
	k.watches, k.byName = nil, map[credentials.Environment]*watch{}
	for i := range environments {
		name := credentials.EnvironmentOf(environments[i])
		w := before[name]
		if w == nil {
			w = k.comes(name, now)
		}
		k.configure(w, &environments[i])
		k.watches, k.byName[name] = append(k.watches, w), w
		w.changed = true
	}
	for name, w := range before {
		if k.byName[name] == nil {
			k.goes(w, now)
		}
	}
}

// comes makes the watch of an environment that was not in the configuration, or not lately.
func (k *Keeper) comes(name credentials.Environment, now time.Time) *watch {
	w := k.newWatch(name)
	k.recall(w, now)
	w.start(now)
	return w
}

// goes keeps what is known of an environment that is no longer in the configuration.
func (k *Keeper) goes(w *watch, now time.Time) {
	if kept, err := w.keep(); err == nil && len(k.absent) < maxAbsent {
		kept.Absent = now
		k.absent[w.Environment.String()] = kept
	}
}

// all are the watches at this moment.
func (k *Keeper) all() []*watch {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.watches)
}

// Reconfigure replaces the configured environments. Those that are new are read by the next Load.
func (b *Silences) Reconfigure(environments []credentials.Environment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = append([]credentials.Environment{AllEnvironments}, environments...)
	maps.DeleteFunc(b.known, func(name credentials.Environment, _ silencesState) bool { return !slices.Contains(b.names, name) })
}

// configured are the environments that may be silenced.
func (b *Silences) configured() []credentials.Environment {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names
}
