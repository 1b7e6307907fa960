package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
)

// writeSample writes the line of a sample into a file of its own, and names the file.
func (j *journal) writeSample(n int) (string, error) {
	name := filepath.Join(j.dir, fmt.Sprintf("event-%d.json", n))
	return name, os.WriteFile(name, j.copy.kept[j.copy.samples[n]].line, 0o600)
}

// proveEvents proves the samples by their lines, and the first event by its id alone: the
// whole journal is searched for it.
func (j *journal) proveEvents() (string, error) {
	var all time.Duration
	for n := range j.copy.samples {
		event, err := j.writeSample(n)
		if err != nil {
			return "", err
		}
		bundle := filepath.Join(j.dir, fmt.Sprintf("bundle-%d.json", n))
		if _, err := j.onTrail("prove-event", event, "--file", bundle); err != nil {
			return "", err
		}
		all += j.took
		j.bundles = append(j.bundles, bundle)
	}
	_, err := j.onTrail("prove-event", eventID(0))
	return fmt.Sprintf("%d of %d events proven, %v each; the oldest by its id alone in %v", len(j.bundles), len(j.copy.samples),
		(all / provenEvents).Round(time.Millisecond), j.took.Round(time.Millisecond)), err
}

// verifyEvents verifies the bundles without the relay, each with its event, and not with
// another one.
func (j *journal) verifyEvents() (string, error) {
	var all time.Duration
	for n, bundle := range j.bundles {
		if _, err := j.verifyBundle(bundle, filepath.Join(j.dir, fmt.Sprintf("event-%d.json", n))); err != nil {
			return "", err
		}
		all += j.took
		other := filepath.Join(j.dir, fmt.Sprintf("event-%d.json", (n+1)%len(j.bundles)))
		if _, err := j.verifyBundle(bundle, other); err == nil {
			return "", fmt.Errorf("the bundle of sample %d is accepted for another event", n)
		}
	}
	if len(j.bundles) < provenEvents {
		return "", errors.New("bundles are missing: see above")
	}
	return fmt.Sprintf("%d of %d bundles hold with the trail's key, in %v each; none for another event", len(j.bundles), provenEvents,
		(all / provenEvents).Round(time.Millisecond)), nil
}

// verifyBundle verifies a bundle with the trail's key, and for an event unless it is "".
func (j *journal) verifyBundle(bundle, event string) (string, error) {
	args := []string{"trail", "prove-event", "--verify", bundle, "--key", j.key}
	if event != "" {
		args = append(args, event)
	}
	return j.command(nil, j.binary, args...)
}

// changedBundles changes one bit of the event in each bundle: none may hold any more.
func (j *journal) changedBundles() (string, error) {
	for n, name := range j.bundles {
		b, err := changedBundle(name)
		if err != nil {
			return "", err
		}
		changed := name + ".changed"
		text, err := json.Marshal(b)
		if err == nil {
			err = os.WriteFile(changed, text, 0o600)
		}
		if err != nil {
			return "", err
		}
		if _, err := j.verifyBundle(changed, ""); err == nil {
			return "", fmt.Errorf("the bundle of sample %d holds with a changed event", n)
		}
	}
	return fmt.Sprintf("all %d refused", len(j.bundles)), nil
}

// changedBundle reads a bundle, and changes a digit of the event's body.
func changedBundle(name string) (*eventproof.Bundle, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	b, err := eventproof.ParseBundle(text)
	if err != nil {
		return nil, err
	}
	event := []byte(b.CloudEvent)
	event[bytes.LastIndex(event, []byte(idPrefix))+len(idPrefix)] ^= 1
	b.CloudEvent = string(event)
	return b, nil
}
