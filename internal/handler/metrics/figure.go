package metrics

import "strconv"

// maxFigure is far more than any real figure. QEMU gives the largest 64-bit number for missing figures of the balloon.
const maxFigure = 1 << 60

// Figure is a measured value or, as the zero value, an unknown one.
type Figure struct {
	value float64
	known bool
}

// Known returns the figure with a value. A value that no honest QEMU or guest reports is unknown.
func Known(value float64) Figure {
	if value >= 0 && value <= maxFigure { // NaN is not
		return Figure{value, true}
	}
	return Figure{}
}

// Value returns the value, if it is known.
func (f Figure) Value() (value float64, known bool) { return f.value, f.known }

// Times returns the figure in another unit.
func (f Figure) Times(factor float64) Figure {
	if !f.known {
		return f
	}
	return Known(f.value * factor)
}

// UnmarshalJSON makes everything but a number unknown.
func (f *Figure) UnmarshalJSON(text []byte) error {
	*f = Figure{}
	if value, err := strconv.ParseFloat(string(text), 64); err == nil {
		*f = Known(value)
	}
	return nil
}
