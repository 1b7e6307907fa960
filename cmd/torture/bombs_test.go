package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Equal seeds make equal bombs.
func TestBombsFollowFromTheSeed(t *testing.T) {
	t.Parallel()
	shapes := append(lokiShapes(), datadogShapes()...)
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for range 200 {
		one, err := makeBomb(a, shapes, 1<<16)
		require.NoError(t, err)
		same, err := makeBomb(b, shapes, 1<<16)
		require.NoError(t, err)
		require.Equal(t, one, same)
	}
}
