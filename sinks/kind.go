package sinks

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/relay"
)

// Kind is a kind of sink added by a Go program; see [NewKind].
type Kind struct {
	kind config.Kind
	open func(config.Section, Options) (relay.Sink, error)
}

// Kinds are those of a Go program.
type Kinds []Kind

// Options are the surroundings of a sink of a [Kind].
type Options struct {
	// Logger is for the sink's own doings, such as reconnecting. Errors of Deliver are
	// logged by the pump.
	Logger *slog.Logger
}

// NewKind makes a kind of sink. In the configuration, a sink of the kind has a section
// called name (see [config.Kind]). It is decoded into the struct T, completed and validated
// before open is called.
//
// open makes a sink under the contract of [relay.Sink]; relaytest.Run tests it. A sink with
// `parallel: N` opens N times, each replay once more, and so does `sinks check`. open
// connects to nothing, and its errors name the wrong field and no secret.
func NewKind[S interface {
	*T
	config.Section
}, T any](name string, open func(section S, opts Options) (relay.Sink, error)) Kind {
	return Kind{
		kind: config.Kind{Name: name, New: func() config.Section { return S(new(T)) }},
		open: func(section config.Section, opts Options) (relay.Sink, error) {
			own, ok := section.(S)
			if !ok {
				return nil, fmt.Errorf("the section of %s is a %T", name, section)
			}
			return open(own, opts)
		},
	}
}

// Config are the kinds as the configuration is loaded with them.
func (k Kinds) Config() config.Kinds {
	kinds := make(config.Kinds, len(k))
	for i := range k {
		kinds[i] = k[i].kind
	}
	return kinds
}

var errNoCase = errors.New("its destination has no case in the switch of package sinks")

func (k Kinds) open(s config.Sink, log *slog.Logger) (relay.Sink, error) {
	if s.Custom == nil {
		return nil, errNoCase
	}
	for _, kind := range k {
		if kind.kind.Name == s.Custom.Kind {
			return kind.open(s.Custom.Section, Options{Logger: log})
		}
	}
	return nil, fmt.Errorf("no kind of sink is called %q", s.Custom.Kind)
}
