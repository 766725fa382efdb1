package caller

import "callee"

func own(n int) error {
	println(n)
	return callee.Typed(n)
}

func compare() {
	_ = own(1) == nil                    // want "never true"
	_ = callee.Typed(1) == nil           // want "never true"
	_ = callee.Generic[int](1) == nil    // want "never true"
	_ = (callee.Maker{}).Typed(1) == nil // want "never true"
	_ = callee.Numbers().Typed(1) == nil
	_ = callee.Either(1) == nil
}
