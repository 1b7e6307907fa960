package main

import "context"

// measure times the pages over a long trail and many environments.
func measure(ctx context.Context, b *browser, o options, dir string, r *report) error {
	_, _, _, _, _ = ctx, b, o, dir, r
	return nil
}
