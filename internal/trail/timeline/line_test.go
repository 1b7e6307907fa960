package timeline

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRowsOfLines(t *testing.T) {
	t.Parallel()
	text := textOf(strings.Repeat("ä", 2*maxSummary), "")
	assert.LessOrEqual(t, len(text), maxSummary)
	assert.True(t, strings.HasSuffix(text, "ä…"), "cut between two letters")
	var made table
	for _, l := range []line{
		{time: at(0), names: [columns]string{ofKind: "settings.changed", ofProject: "acme", ofSubject: "rbac_policy"}, levels: levelsOf(3, 4), flags: isState | needsReview, text: text},
		{flags: isMissing},
		{time: at(1), names: [columns]string{ofKind: TypeAnnotated}, flags: isAnnotation, reviews: 0},
		{time: at(2), names: [columns]string{ofKind: TypeAnnotated}, flags: isAnnotation, reviews: 9},
	} {
		made.take(&l, 100)
	}
	assert.EqualValues(t, 4, made.n)
	assert.Equal(t, "high", made.show(0).Severity)
	assert.True(t, made.show(0).Reviewed)
	assert.True(t, made.show(1).Missing)
	assert.Equal(t, []int64{100, int64(len(text))}, []int64{made.at(0).Text, int64(made.at(0).Length)})
	assert.Len(t, made.reviews, 1, "an entry can only speak of earlier ones")
}
