package workspacesim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/auditrelay/auditrelay/config/secret"
)

// Simulator is one workspace. Its methods may be called concurrently.
type Simulator struct {
	opts    Options // immutable
	keyID   secret.Text
	log     *slog.Logger
	limiter *limiter
	faults  faultBox
	pushes  *pusherClient

	requests atomic.Uint64 // request ids given out

	mu       sync.Mutex // guards the fields below
	projects []*projectState
	migrated migrated
	changes  []Change                       // the last ones
	changed  int                            // number of changes made
	rng      *rand.Rand                     // draws changes
	seen     map[[sha256.Size]byte]struct{} // former states of resources
	paused   bool                           // no events are generated
	running  context.Context                // of the streams; nil while stopped
	stop     context.CancelFunc
	streams  sync.WaitGroup
}

// New makes a workspace. Nothing runs before Start.
func New(o Options) (*Simulator, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("make workspace simulator: %w", err)
	}
	s := &Simulator{
		opts:    o,
		keyID:   secret.New(o.KeyID),
		log:     o.Logger,
		limiter: newLimiter(o.RateLimit),
		faults:  faultBox{rng: rand.New(rand.NewPCG(o.Seed, 1))},
		pushes:  newPusherClient(&o),
		rng:     rand.New(rand.NewPCG(o.Seed, 2)),
		seen:    map[[sha256.Size]byte]struct{}{},

		migrated: migrated{there: map[string]bool{}, slugs: map[string]string{}},
	}
	s.seed()
	return s, nil
}

// Start lets the environments generate and push events, until ctx ends or Stop
// is called.
func (s *Simulator) Start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running != nil {
		return
	}
	s.running, s.stop = context.WithCancel(ctx)
	for _, e := range s.environments() {
		e.stream.run(s.running, &s.streams)
	}
}

// Stop ends all streams and waits for them. Unacknowledged events stay counted as in
// flight, and are pushed after another Start.
func (s *Simulator) Stop() {
	s.mu.Lock()
	stop := s.stop
	s.running, s.stop = nil, nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.streams.Wait()
	s.pushes.close()
}

// environments lists all, in order. The caller holds s.mu.
func (s *Simulator) environments() []*environment {
	var all []*environment
	for _, p := range s.projects {
		all = append(all, p.environments...)
	}
	return all
}

// Environment names an environment, and its deletable parts.
type Environment struct {
	Project      string   `json:"project_slug"`
	Environment  string   `json:"environment_slug"`
	RedirectURLs []string `json:"redirect_urls"`
	Secrets      []string `json:"secrets"`
	PublicTokens []string `json:"public_tokens"`
}

// Environments lists the workspace's environments in a fixed order.
func (s *Simulator) Environments() []Environment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []Environment
	for _, e := range s.environments() {
		item := Environment{Project: e.project, Environment: e.slug}
		for _, r := range e.redirects {
			item.RedirectURLs = append(item.RedirectURLs, r.URL)
		}
		item.Secrets = append(item.Secrets, e.secrets...)
		item.PublicTokens = append(item.PublicTokens, e.publicTokens...)
		list = append(list, item)
	}
	return list
}

// find returns an environment by its slugs.
func (s *Simulator) find(projectSlug, environmentSlug string) (*environment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.environments() {
		if e.project == projectSlug && e.slug == environmentSlug {
			return e, nil
		}
	}
	return nil, fmt.Errorf("find environment: there is no %s/%s", projectSlug, environmentSlug)
}

// SetRateLimit changes the API's rate limit, in requests a second, 0 for none.
func (s *Simulator) SetRateLimit(perSecond float64) { s.limiter.set(perSecond) }
