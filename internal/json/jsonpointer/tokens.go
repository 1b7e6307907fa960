package jsonpointer

// Tokens yields the steps of p from the outside in: the unescaped name of each,
// and its index if the name is one of an array, else -1. It can be ranged over.
func (p Pointer) Tokens(yield func(name string, index int) bool) {
	for _, t := range p.tokens {
		if !yield(t.name, t.index) {
			return
		}
	}
}
