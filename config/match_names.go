package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/internal/routing/match"
)

// relayProject is the project of the relay's own audit events.
const relayProject = "auditrelay"

// typeFamilies are the first parts of types: those of pushed events, and the relay's own.
func typeFamilies() []string {
	return []string{"event_log", "settings", "streaming", "journal", "trail", "audit", "credential", "credentials", "deadletters", "sink", "environment", "workspace", "action", "health", "silence", "migration", "policy", "relay", "console"}
}

// relayTypes are types of the relay's own events, to suggest for a pattern.
func relayTypes() []string {
	return []string{
		"settings.baseline", "settings.changed", "settings.gone", "settings.restated", "settings.checked",
		"settings.failed", "settings.recovered", "streaming.failed", "streaming.recovered", "streaming.checked",
		"streaming.put_intended", "streaming.put_ended", "streaming.put_failed",
		"health.changed", "health.gap", "silence.added", "silence.ended", "migration.started", "migration.ended", "policy.violated", "policy.ended", "environment.gone", "environment.back", "workspace.unreachable", "workspace.reachable", "action.intended", "action.ended",
		"streaming.baseline", "streaming.changed", "streaming.restated", "streaming.status_changed",
		"journal.quarantined", "journal.damage_accepted", "trail.damaged", "trail.restored", "trail.generation", "trail.key_rotated", "trail.checkpoint",
		"trail.witness_refused", "trail.witness_agreed",
		"credential.revoked", "console.session_revoked", "console.work_stopped", "credentials.damaged", "deadletters.discarded", "deadletters.replayed", "journal.replayed", "sink.retired", "relay.started", "relay.reloaded", "relay.stopped",
	}
}

// matchNames warns of names that no event has. A sink that matches only these gets nothing,
// without any sign of it.
func (k *checker) matchNames(at string, m *Match, environments []Environment) {
	projects, names := []string{relayProject, "-"}, []string{""}
	for _, e := range environments {
		projects, names = append(projects, e.Project), append(names, e.Environment)
	}
	k.known(at+".projects", m.Projects, projects, "project")
	k.known(at+".environments", m.Environments, names, "environment")
	for i, pattern := range m.Types {
		if reason := unknownType(pattern); reason != "" {
			k.warn(fmt.Sprintf("%s.types[%d]", at, i), reason)
		}
	}
}

func (k *checker) known(at string, patterns, names []string, what string) {
	for i, text := range patterns {
		if pattern := match.ParsePattern(text); !slices.ContainsFunc(names, pattern.Matches) {
			k.warn(fmt.Sprintf("%s[%d]", at, i), "matches nothing: no "+what+" of that name is in environments")
		}
	}
}

// unknownType says why no event's type matches pattern, or returns nothing.
func unknownType(pattern string) string {
	literal, _, wild := strings.Cut(pattern, "*")
	if !wild && !slices.Contains(relayTypes(), pattern) {
		for _, known := range relayTypes() {
			if near(pattern, known) {
				return "matches nothing; did you mean " + known + "?"
			}
		}
	}
	for _, family := range typeFamilies() {
		begins := strings.HasPrefix(literal, family+".") || wild && strings.HasPrefix(family+".", literal)
		if begins || pattern == "event_log" {
			return ""
		}
	}
	return "matches nothing: types begin with " + strings.Join(typeFamilies(), "., ") + "."
}
