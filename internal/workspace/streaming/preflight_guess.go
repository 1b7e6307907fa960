package streaming

import (
	"context"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
)

// maxGuesses bounds the slugs tried in place of missing ones, in one preflight. No operation
// of the API lists projects or environments: only trying finds them.
const maxGuesses = 40

// usual are common slugs of environments.
var usual = []string{"production", "prod", "live", "staging", "test", "development", "dev", "sandbox"}

// variants are other spellings of a slug.
func variants(slug string) []string {
	lower := strings.ToLower(slug)
	return without(slug, []string{lower, strings.ReplaceAll(lower, "_", "-"), strings.ReplaceAll(lower, "-", "_")})
}

// guessesFor are the slugs to try in place of e's environment, the likely ones first.
func (r *preflightRun) guessesFor(e config.Environment) []string {
	all := variants(e.Environment)
	for _, other := range r.cfg.Environments {
		if other.Project == e.Project {
			all = append(all, other.Environment)
		}
	}
	return without(e.Environment, append(all, usual...))
}

// without drops slug, and repetitions.
func without(slug string, all []string) []string {
	var kept []string
	for _, s := range all {
		if s != slug && !slices.Contains(kept, s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// existing reads the slugs, and names the existing ones; empty: none was found.
func (r *preflightRun) existing(ctx context.Context, slugs []string, read func(slug string) error) string {
	var exist []string
	for _, slug := range slugs {
		if r.guessed.Add(1) > maxGuesses || ctx.Err() != nil {
			break
		}
		if read(slug) == nil {
			exist = append(exist, slug)
		}
	}
	if len(exist) == 0 {
		return ""
	}
	return "; tried in its place, and found: " + strings.Join(exist, ", ")
}
