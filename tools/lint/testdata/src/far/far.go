package far

type Failure struct{}

func (*Failure) Error() string { return "" }

func find(n int) *Failure {
	if n > 3 {
		return nil
	}
	return new(Failure)
}

func Typed(n int) error {
	failure := find(n)
	println(n)
	return failure
}

type Maker struct{}

func (Maker) Typed(n int) error {
	println(n)
	return find(n)
}

type Of[T any] struct{}

func (*Of[T]) Typed(n int) error {
	println(n)
	return find(n)
}
