package main

import (
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
)

// The logs of a relay's store.
const (
	eventsLog      = "events"
	lettersLog     = "deadletters"
	quarantineLog  = "quarantine"
	entriesLog     = "trail.entries"
	checkpointsLog = "trail.checkpoints"
)

// files are those of the relay's store.
func (s *scene) files() damage.Store { return damage.Of(s.dataDir) }

// placed is a record of events in a file of the journal, with their ids.
type placed struct {
	damage.Place
	ids []string
}

// load reads records of events.
func load(places []damage.Place) (all []placed, err error) {
	for _, p := range places {
		ids, err := damage.EventIDs(p)
		if err != nil {
			return nil, err
		}
		all = append(all, placed{p, ids})
	}
	return all, nil
}
