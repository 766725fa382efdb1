package migrationwire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

var update = flag.Bool("update", false, "write the golden files of the current version; those of a released version must not change")

// frames has one of each, as version 1 sends them.
func frames() map[string]any {
	message := func(kind Kind) any { return Message{Kind: kind, MigrationUID: "6ec9"} }
	return map[string]any{
		"header-control": Header{Version: 1, MigrationUID: "6ec9", VMIUID: "d41d", Namespace: "shop", Name: "db", Channel: Control},
		"header-stream":  Header{Version: 1, MigrationUID: "6ec9", VMIUID: "d41d", Namespace: "shop", Name: "db", Channel: Stream},
		"accepted":       Answer{Version: 1},
		"refused":        Answer{Version: 1, Refusal: "node a is not the source of migration 6ec9"},
		"alive":          message(Alive),
		"released":       message(Released),
		"ready":          message(Ready),
		"plugged":        message(Plugged),
		"disks":          Message{Kind: Plugs, MigrationUID: "6ec9", Disks: []Disk{{Volume: "data", Bus: "scsi", Number: 2}, {Volume: "cd"}}, Total: 2},
		"ran":            message(Ran),
		"never":          message(Never),
	}
}

func decoded(t *testing.T, like any, text []byte) any {
	t.Helper()
	var buffer bytes.Buffer
	buffer.Write(binary.BigEndian.AppendUint16(nil, uint16(len(text))))
	buffer.Write(text)
	frame := reflect.New(reflect.TypeOf(like))
	if err := Read(&buffer, frame.Interface()); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return frame.Elem().Interface()
}

// added are the frames that version 2 adds.
func added() map[string]any {
	return map[string]any{
		"header-disks": Header{Version: 2, MigrationUID: "6ec9", VMIUID: "d41d", Namespace: "shop", Name: "db", Channel: Disks},
	}
}

// agreeing are the frames that version 3 adds.
func agreeing() map[string]any {
	return map[string]any{
		"offer":            Message{Kind: Offer, MigrationUID: "6ec9", Transport: &Transport{Channels: 4}},
		"agreed":           Message{Kind: Agreed, MigrationUID: "6ec9", Transport: &Transport{Channels: 2}},
		"offer-post-copy":  Message{Kind: Offer, MigrationUID: "6ec9", Transport: &Transport{Channels: 4, PostCopy: true}},
		"agreed-post-copy": Message{Kind: Agreed, MigrationUID: "6ec9", Transport: &Transport{PostCopy: true, TellsLoaded: true}},
		"loaded":           Message{Kind: Loaded, MigrationUID: "6ec9"},
		"agreed-to-no-one": Message{Kind: Agreed, MigrationUID: "6ec9", Transport: &Transport{}},
	}
}

// A virt-handler of the previous release reads a version's frames: they must never change.
func TestAdjacentVersionsUnderstandEachOther(t *testing.T) {
	for version, frames := range map[string]map[string]any{"v1": frames(), "v2": added(), "v3": agreeing()} {
		for name, frame := range frames {
			keeps(t, filepath.Join("testdata", version, name+".json"), frame)
		}
		files, err := filepath.Glob(filepath.Join("testdata", version, "*.json"))
		if err != nil || len(files) != len(frames) {
			t.Errorf("there are %d golden files for %d frames of %s: %v", len(files), len(frames), version, err)
		}
	}
}

func keeps(t *testing.T, path string, frame any) {
	t.Helper()
	text, err := json.Marshal(frame)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden = bytes.TrimSpace(golden)
	if !bytes.Equal(text, golden) {
		t.Errorf("%s: sent is %s, and was %s", path, text, golden)
	}
	if got := decoded(t, frame, golden); !reflect.DeepEqual(got, frame) {
		t.Errorf("%s: read is %+v, want %+v", path, got, frame)
	}
	// The next release adds a field.
	later := append([]byte(`{"added":{"in":["a later version"]},`), golden[1:]...)
	if got := decoded(t, frame, later); !reflect.DeepEqual(got, frame) {
		t.Errorf("%s: of a later version, read is %+v, want %+v", path, got, frame)
	}
}

func TestHeadersAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Header)
		want   string
	}{
		"as it must be":                 {func(*Header) {}, ""},
		"of a later version":            {func(h *Header) { h.Version = Version + 1 }, ""},
		"of a version from before any":  {func(h *Header) { h.Version = Oldest - 1 }, "understands 1 and later"},
		"without a migration":           {func(h *Header) { h.MigrationUID = "" }, "must name a migration"},
		"without the VMI's UID":         {func(h *Header) { h.VMIUID = "" }, "must name a migration"},
		"without a namespace":           {func(h *Header) { h.Namespace = "" }, "must name a migration"},
		"without a name":                {func(h *Header) { h.Name = "" }, "must name a migration"},
		"without a channel":             {func(h *Header) { h.Channel = "" }, "is unknown"},
		"for a channel of another time": {func(h *Header) { h.Channel = Channel(strings.Repeat("n", 100)) }, `"` + strings.Repeat("n", 40) + `" is unknown`},
	} {
		h := Header{Version: Version, MigrationUID: "m", VMIUID: "u", Namespace: "n", Name: "v", Channel: Stream}
		c.change(&h)
		err := h.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a header %s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAFactIsOneSides(t *testing.T) {
	for kind, want := range map[Kind]Side{Released: Source, Ready: Target, Loaded: Target, Ran: Target, Never: Target, Offer: Source, Agreed: Target, Alive: 0, "of a later version": 0} {
		if got := kind.Speaker(); got != want {
			t.Errorf("%s is a fact of side %d, want %d", kind, got, want)
		}
	}
}

func TestTransportsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		transport *Transport
		want      string
	}{
		"none":              {nil, "without a transport"},
		"one connection":    {&Transport{}, ""},
		"the most channels": {&Transport{Channels: MaxChannels}, ""},
		"too many":          {&Transport{Channels: MaxChannels + 1}, "0 to 16 channels, not 17"},
		"less than none":    {&Transport{Channels: -1}, "0 to 16 channels, not -1"},
	} {
		err := c.transport.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a transport of %s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAFrameIsReadAndNoByteMore(t *testing.T) {
	var buffer bytes.Buffer
	if err := Write(&buffer, Answer{Version: 1}); err != nil {
		t.Fatal(err)
	}
	buffer.WriteString("what QEMU says")
	var answer Answer
	// A connection may deliver any small number of bytes at a time.
	if err := Read(iotest.OneByteReader(&buffer), &answer); err != nil || answer.Version != 1 {
		t.Fatalf("read is %+v: %v", answer, err)
	}
	if rest := buffer.String(); rest != "what QEMU says" {
		t.Errorf("left is %q", rest)
	}
}

func TestARefusalIsASentenceAndFits(t *testing.T) {
	for name, c := range map[string]struct{ reason, want string }{
		"a sentence":            {"node a is not the source", "node a is not the source"},
		"what moves the cursor": {"a\x1b[2J\r\nb", "a?[2J??b"},
		"what is no text":       {"a\xff\xfeb", "a\ufffd\ufffdb"},
		"a long one":            {strings.Repeat("<", 5000), strings.Repeat("<", MaxText)},
		"a long one of runes":   {"a" + strings.Repeat("ä", 5000), "a" + strings.Repeat("ä", MaxText/2-1)},
	} {
		var buffer bytes.Buffer
		if err := Write(&buffer, Refuse(errors.New(c.reason))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var answer Answer
		if err := Read(&buffer, &answer); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := answer.Err(); err == nil || err.Error() != c.want {
			t.Errorf("%s: heard is %q, want %q", name, err, c.want)
		}
		// An attacked target obeys no rule.
		if err := (&Answer{Refusal: c.reason}).Err(); err == nil || err.Error() != c.want {
			t.Errorf("%s: from a hostile target, %q, want %q", name, err, c.want)
		}
	}
	if err := (&Answer{Version: 1}).Err(); err != nil {
		t.Errorf("an acceptance is the refusal %v", err)
	}
}

func TestFramesAreBounded(t *testing.T) {
	long := Answer{Version: 1, Refusal: strings.Repeat("x", MaxFrame)}
	if err := Write(io.Discard, long); err == nil || !strings.Contains(err.Error(), "longer than the 4096") {
		t.Errorf("sending one that is too long: %v", err)
	}
	fits := Answer{Version: 1, Refusal: strings.Repeat("x", MaxFrame-len(`{"version":1,"refusal":""}`))}
	var buffer bytes.Buffer
	if err := Write(&buffer, fits); err != nil {
		t.Fatal(err)
	}
	var got Answer
	if err := Read(&buffer, &got); err != nil || got != fits {
		t.Errorf("one of the greatest length: %v", err)
	}
	for name, c := range map[string]struct {
		bytes string
		want  string
	}{
		"one that says that it is too long": {"\x10\x01{}", "longer than the 4096"},
		"half a length":                     {"\x00", "unexpected EOF"},
		"half a frame":                      {"\x00\x05{}", "unexpected EOF"},
		"no frame after its length":         {"\x00\x05", "unexpected EOF"},
		"no JSON":                           {"\x00\x02no", "not what it must be"},
		"nothing at all in it":              {"\x00\x00", "not what it must be"},
		"a number for a sentence":           {"\x00\x0d{\"refusal\":1}", "not what it must be"},
	} {
		err := Read(strings.NewReader(c.bytes), &got)
		if err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := Read(strings.NewReader(""), &got); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a connection: %v", err)
	}
}

func TestTheAddressOfATarget(t *testing.T) {
	for text, want := range map[string]string{
		"10.244.1.7:8187":           "",
		"[fd00::7]:8187":            "",
		"[fe80::1%migration0]:8187": "",
		"":                          "must be an IP address and a port",
		"10.244.1.7":                "must be an IP address and a port",
		"virt-api.kubevirt.svc:443": "must be an IP address and a port",
		"10.244.1.7:0":              "none that can be called",
		"0.0.0.0:8187":              "none that can be called",
		"[::]:8187":                 "none that can be called",
		"224.0.0.1:8187":            "none that can be called",
	} {
		got, err := ParseAddress(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err == nil && got.String() != text {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

// There are as many disks as possible, with the longest names. An answer of another kind must be refused.
func TestDisksAreToldInParts(t *testing.T) {
	var disks []Disk
	for i := range MaxPlugs {
		disks = append(disks, Disk{Volume: strings.Repeat("v", maxName), Bus: strings.Repeat("b", maxName), Number: i})
	}
	var told DisksTold
	var got []Disk
	for _, m := range SplitDisks(disks) {
		var buffer bytes.Buffer
		m.MigrationUID = strings.Repeat("u", 64)
		if err := Write(&buffer, m); err != nil {
			t.Fatal(err)
		}
		var read Message
		if err := Read(&buffer, &read); err != nil {
			t.Fatal(err)
		}
		if len(got) > 0 {
			t.Error("they are there before the last part")
		}
		var err error
		if got, err = told.Add(&read); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, disks) {
		t.Errorf("%d disks are heard of, want %d", len(got), len(disks))
	}
	one := []Disk{{Volume: "a"}}
	for name, m := range map[string]Message{
		"more than it says":    {Total: 1, Disks: []Disk{{Volume: "a"}, {Volume: "b"}}},
		"more than there can":  {Total: MaxPlugs + 1, Disks: one},
		"a disk without name":  {Total: 1, Disks: []Disk{{}}},
		"a long name":          {Total: 1, Disks: []Disk{{Volume: strings.Repeat("v", maxName+1)}}},
		"a long bus":           {Total: 1, Disks: []Disk{{Volume: "a", Bus: strings.Repeat("b", maxName+1)}}},
		"a place before all":   {Total: 1, Disks: []Disk{{Volume: "a", Number: -1}}},
		"a place beyond all":   {Total: 1, Disks: []Disk{{Volume: "a", Number: maxNumber + 1}}},
		"less than none of it": {Total: -1, Disks: one},
	} {
		if disks, err := new(DisksTold).Add(&m); err == nil {
			t.Errorf("%s: it is taken for %v", name, disks)
		}
	}
}
