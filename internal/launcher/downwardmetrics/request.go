package downwardmetrics

// request is the only one that there is. An empty line ends a request.
const request = "GET /metrics/XML\n\n"

// MaxRequest is how many bytes of a request are kept. One that is longer is none that there is.
const MaxRequest = 64

// Verdict is what becomes of what a guest has written.
type Verdict int

const (
	// Incomplete means that no request has ended.
	Incomplete Verdict = iota
	// Unknown means that the guest wants something that there is not.
	Unknown
	// Asked means that it wants the document.
	Asked
)

// Requests are what a guest writes. The zero value waits for the first one. It holds no more than
// MaxRequest bytes, whatever is written.
type Requests struct {
	kept   [MaxRequest]byte
	length int
	last   byte
}

// Read takes what comes next. All requests that end in it have one verdict: Asked, if one of them is the document's.
func (r *Requests) Read(text []byte) Verdict {
	all := Incomplete
	for _, b := range text {
		all = max(all, r.take(b))
	}
	return all
}

func (r *Requests) take(b byte) Verdict {
	if b == '\r' {
		return Incomplete // lines may end as those of HTTP do
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
	// Of a longer one the kept bytes are more than the request's, too.
	asked := string(r.kept[:r.length]) == request
	*r = Requests{}
	if asked {
		return Asked
	}
	return Unknown
}

// Answer returns a document as the answer to a request: an empty line ends it.
func Answer(document []byte) []byte { return append(document[:len(document):len(document)], '\n') }

// Refusal is the answer to an unknown request.
func Refusal() []byte { return []byte("INVALID REQUEST\n\n") }
