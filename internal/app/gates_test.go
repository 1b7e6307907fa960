package app

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
	"github.com/auditrelay/auditrelay/sinks"
)

// gated is the section of a sink that a test holds up.
type gated struct {
	Gate  string `yaml:"gate"`
	Wrong bool   `yaml:"wrong"`
}

func (*gated) SetDefaults()               {}
func (*gated) Problems() []config.Problem { return nil }

// oneWriter is the same, for a destination with one writer.
type oneWriter struct {
	Gate  string `yaml:"gate"`
	Place string `yaml:"place"`
}

func (*oneWriter) SetDefaults()                     {}
func (*oneWriter) Problems() []config.Problem       { return nil }
func (w *oneWriter) Resource() (field, name string) { return "place", w.Place }

func placedSinkNamed(name, gate, place string) config.Sink {
	return config.Sink{Name: name, Custom: &config.Custom{Kind: "placed", Section: &oneWriter{Gate: gate, Place: place}}}
}

// gates are the sinks of a test that it can hold up, and what they got, by their gates' names.
type gates struct {
	mu   sync.Mutex
	held map[string]chan struct{} // guarded by mu
	got  map[string][]string      // ids of pushed events; guarded by mu
	at   map[string]int           // deliveries under way; guarded by mu
}

func newGates() *gates {
	return &gates{held: map[string]chan struct{}{}, got: map[string][]string{}, at: map[string]int{}}
}

func (g *gates) kinds() sinks.Kinds {
	return sinks.Kinds{sinks.NewKind("gated", func(s *gated, _ sinks.Options) (relay.Sink, error) {
		if s.Wrong {
			return nil, errors.New("gated.wrong: it is set")
		}
		g.pass("opening " + s.Gate)()
		return &gatedSink{g, s.Gate}, nil
	}), sinks.NewKind("placed", func(s *oneWriter, _ sinks.Options) (relay.Sink, error) {
		return &gatedSink{g, s.Gate}, nil
	})}
}

// hold makes deliveries through a gate wait, whatever their contexts say, until it is opened.
func (g *gates) hold(name string) (open func()) {
	wait := make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[name] = wait
	return sync.OnceFunc(func() { close(wait) })
}

func (g *gates) ids(name string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.got[name])
}

func (g *gates) underWay(name string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at[name]
}

type gatedSink struct {
	gates *gates
	name  string
}

// pass goes through a gate; passed says that what is done there has ended.
func (g *gates) pass(name string) (passed func()) {
	g.mu.Lock()
	wait := g.held[name]
	g.at[name]++
	g.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.at[name]--
	}
}

func (s *gatedSink) Deliver(_ context.Context, events []relay.Event) error {
	defer s.gates.pass(s.name)()
	s.gates.mu.Lock()
	defer s.gates.mu.Unlock()
	for i := range events {
		if events[i].Source != relay.TrailSource {
			s.gates.got[s.name] = append(s.gates.got[s.name], events[i].ID)
		}
	}
	return nil
}

func (*gatedSink) Close() error { return nil }

func gatedSinkNamed(name, gate string) config.Sink {
	return config.Sink{Name: name, Custom: &config.Custom{Kind: "gated", Section: &gated{Gate: gate}}}
}
