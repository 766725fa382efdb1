package callee

import "far"

type Maker struct{ far.Maker }

func Typed(n int) error {
	err := far.Typed(n)
	println(n)
	return err
}

func Generic[T any](n int) error {
	println(n)
	return far.Typed(n)
}

func Numbers() *far.Of[int] { return nil }

func Either(n int) error {
	if n > 1 {
		return nil
	}
	return far.Typed(n)
}
