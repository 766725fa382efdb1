package downwardmetrics

// request is the only valid request. An empty line ends a request.
const request = "GET /metrics/XML\n\n"

// MaxRequest bounds a request, in bytes. A longer one is invalid.
const MaxRequest = 64

// Verdict is the result of reading a guest's text.
type Verdict int

// Incomplete means that no request has ended, Unknown that one is invalid, Asked that the guest wants the document.
const (
	Incomplete Verdict = iota
	Unknown
	Asked
)

// Requests parses a guest's text. The zero value is ready for use.
type Requests struct {
	kept   [MaxRequest]byte
	length int
	last   byte
}

// Read parses text. The requests that end in it get one verdict: Asked, if one of them is valid.
func (r *Requests) Read(text []byte) Verdict {
	all := Incomplete
	for _, b := range text {
		all = max(all, r.take(b))
	}
	return all
}

func (r *Requests) take(b byte) Verdict {
	if b == '\r' {
		return Incomplete // lines may end like HTTP's
	}
	ends := b == '\n' && r.last == '\n'
	r.last = b
	if r.length < MaxRequest {
		r.kept[r.length] = b
		r.length++
	}
	if !ends {
		return Incomplete
	}
	// The kept bytes of a longer request differ from the valid one, too.
	asked := string(r.kept[:r.length]) == request
	*r = Requests{}
	if asked {
		return Asked
	}
	return Unknown
}

// Answer returns the answer, which an empty line ends.
func Answer(document []byte) []byte { return append(document[:len(document):len(document)], '\n') }

// Refusal returns the answer to an invalid request.
func Refusal() []byte { return []byte("INVALID REQUEST\n\n") }
