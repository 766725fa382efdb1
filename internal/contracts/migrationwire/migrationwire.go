// Package migrationwire is the protocol between the virt-handlers of a migration's source and target. It owns the messages,
// their encoding and limits, and the compatibility of versions. It must not open a connection or judge a migration.
//
// Every connection has its own TLS; both sides show their node's certificate (nodecert). The source dials:
//
//	source -> Header{control}   target -> Answer     then Messages in both directions
//	source -> Header{stream}    target -> Answer     then the stream between the QEMUs
//	source -> Header{disks}     target -> Answer     then the same, in the protocol of NBD
//
// The source keeps a control connection open as long as the migration is wanted, and dials again when it ends. Messages
// are facts that stay true: each side repeats all of its own on every connection, and a late or duplicate one does no
// harm. A stream belongs to one connection of QEMU and ends with it.
//
// A frame is two bytes of length, in network byte order, and a JSON object.
//
// Versions: readers ignore unknown fields and kinds, which a newer version may add. Each side first sends its Version
// (Header, Answer), and both use the lower one. A change that an older release would misunderstand needs another Channel.
package migrationwire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Port is the TCP port on which virt-handler listens for migrations to its node.
const Port = 8187

// Protocol is negotiated in the TLS handshake (ALPN).
const Protocol = "drydock-migration/1"

// Version is this program's version, Oldest the oldest that it supports.
const (
	Version         = 3
	Oldest          = 1
	CopiesDisks     = 2 // the first version whose source copies the disks that move with a guest
	AgreesTransport = 3 // the first version with Offer and Agreed; earlier ones use one connection
)

// Both sides keep these limits, and must accept all messages within them.
const (
	MaxFrame    = 4096            // bytes of one frame's JSON
	MaxText     = 512             // bytes of a message in an Answer; it fits into a frame however JSON encodes it
	MaxStreams  = 1 + MaxChannels // QEMU's connections for one migration: the main one, and those of multifd
	MaxChannels = 16
	MaxDisks    = 64               // QEMU's connections for the disks of one migration, one for each disk
	Greeting    = 10 * time.Second // from a connection's first byte to its Answer
	// AliveEvery is the longest pause of a side on the control connection. After Silence, the other considers it gone.
	AliveEvery = time.Second
	Silence    = 4 * time.Second
)

// Channel is the purpose of a connection.
type Channel string

// Channels.
const (
	Control Channel = "control"
	Stream  Channel = "stream"
	// Disks is for the content of one disk. An older virt-handler refuses it.
	Disks Channel = "disks"
)

// MaxOpen returns how many connections of a channel one migration may have; 0 for an unknown channel, and for control,
// whose newest connection replaces the others.
func (c Channel) MaxOpen() int {
	switch c {
	case Stream:
		return MaxStreams
	case Disks:
		return MaxDisks
	}
	return 0
}

// Header is the first frame of a connection, from the source.
type Header struct {
	Version      int     `json:"version"`
	MigrationUID string  `json:"migrationUID"`
	VMIUID       string  `json:"vmiUID"`
	Namespace    string  `json:"namespace"`
	Name         string  `json:"name"`
	Channel      Channel `json:"channel"`
	// CopiesClaims means that the source copies disks whose claims change. An older source would hand its guest over
	// without them.
	CopiesClaims bool `json:"copiesClaims,omitempty"`
	// CopiesPlugged means the same for plugged disks (decision 343).
	CopiesPlugged bool `json:"copiesPlugged,omitempty"`
}

// Check returns an error for an invalid header.
func (h *Header) Check() error {
	switch {
	case h.Version < Oldest:
		return fmt.Errorf("the source speaks version %d of the protocol between virt-handlers; this virt-handler understands %d and later", h.Version, Oldest)
	case h.MigrationUID == "" || h.VMIUID == "" || h.Namespace == "" || h.Name == "":
		return errors.New("the header must name a migration and its VMI")
	case h.Channel != Control && h.Channel.MaxOpen() == 0:
		return fmt.Errorf("the channel %.40q is unknown", h.Channel)
	}
	return nil
}

// Answer is the target's one frame after the Header. After a refusal, the connection ends.
type Answer struct {
	Version int    `json:"version"`
	Refusal string `json:"refusal,omitempty"` // empty if the connection is accepted
}

// Refuse returns the answer that refuses a connection.
func Refuse(reason error) Answer { return Answer{Version: Version, Refusal: printable(reason.Error())} }

// Err returns the refusal, nil for none. Its text is from another node.
func (a *Answer) Err() error {
	if a.Refusal == "" {
		return nil
	}
	return errors.New(printable(a.Refusal))
}

// printable truncates a text, and replaces characters that a terminal or a log could interpret.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "")
	}
	return text
}

// Kind is a fact about a migration, or Alive.
type Kind string

// Facts stay true, whatever happens afterwards.
const (
	Alive Kind = "Alive" // the sender is alive
	// Plugs is the source's: Message.Disks are some of its guest's plugged disks.
	Plugs   Kind = "Plugs"
	Plugged Kind = "Plugged" // the target's: its QEMU has all plugged disks
	// Offer is the source's: it requests Message.Transport. Agreed is the target's: its QEMU receives the guest by that
	// transport, the offer or less. Ready follows it.
	Offer  Kind = "Offer"
	Agreed Kind = "Agreed"
	// Released is the source's: its QEMU has completed the migration, and may have ended since. The target may run.
	Released Kind = "Released"
	Ready    Kind = "Ready" // the target's: its QEMU accepts the migration's streams
	// Loaded is the target's: its QEMU has loaded a guest whose memory follows, and can run it. The source releases no
	// guest in a post-copy before that, if the target's Agreed says that Loaded will follow.
	Loaded Kind = "Loaded"
	Ran    Kind = "Ran"   // the target's: its guest was started, or is about to be; the source must not run again
	Never  Kind = "Never" // the target's: its QEMU has ended without starting its guest; the source may run again
)

// Side is one of the two virt-handlers of a migration.
type Side int

// Sides.
const (
	Source Side = iota + 1
	Target
)

// Speaker returns the side that sends the fact, zero for Alive and unknown kinds.
func (k Kind) Speaker() Side {
	switch k {
	case Released, Plugs, Offer:
		return Source
	case Ready, Plugged, Agreed, Loaded, Ran, Never:
		return Target
	}
	return 0
}

// Message is a frame on the control connection.
type Message struct {
	Kind         Kind       `json:"kind"`
	MigrationUID string     `json:"migrationUID"`
	Disks        []Disk     `json:"disks,omitempty"`     // of this frame, in Plugs
	Total        int        `json:"total,omitempty"`     // number of disks in all frames, in Plugs
	Transport    *Transport `json:"transport,omitempty"` // in Offer and Agreed
}

// Transport is how the guest is sent from QEMU to QEMU. A field unknown to a version is unused in it.
type Transport struct {
	Channels    int  `json:"channels,omitempty"`    // connections for memory beside the main one
	PostCopy    bool `json:"postCopy,omitempty"`    // the guest may move before its memory
	TellsLoaded bool `json:"tellsLoaded,omitempty"` // in Agreed: the target sends Loaded in a post-copy; older ones omit it
}

// Check returns an error for an invalid transport. t is nil for a message without one.
func (t *Transport) Check() error {
	switch {
	case t == nil:
		return errors.New("a message without a transport speaks of one")
	case t.Channels < 0 || t.Channels > MaxChannels:
		return fmt.Errorf("a migration has 0 to %d channels, not %d", MaxChannels, t.Channels)
	}
	return nil
}

// Disk is a disk that was plugged into the source's machine.
type Disk struct {
	Volume string `json:"volume"`
	// Bus and Number are its slot: a LUN of the SCSI controller, or the root port of a virtio disk. A medium in a drive
	// has no bus.
	Bus    string `json:"bus,omitempty"`
	Number int    `json:"number,omitempty"`
}

// Limits of plugged disks.
const (
	MaxPlugs     = 512 // disks of one machine
	PlugsInFrame = 16  // disks of one Message: as many fit into a frame with the longest names
	maxName      = 63
	maxNumber    = 1024
)

// Check returns an error for an invalid disk.
func (d *Disk) Check() error {
	if d.Volume == "" || len(d.Volume) > maxName || len(d.Bus) > maxName || d.Number < 0 || d.Number > maxNumber {
		return fmt.Errorf("there is no disk %.100q at %.20q %d", d.Volume, d.Bus, d.Number)
	}
	return nil
}

// SplitDisks returns the messages for all disks, without their migration.
func SplitDisks(disks []Disk) []Message {
	var out []Message
	for part := range slices.Chunk(disks, PlugsInFrame) {
		out = append(out, Message{Kind: Plugs, Disks: part, Total: len(disks)})
	}
	return out
}

// DisksTold collects the disks of one connection's messages.
type DisksTold struct{ disks []Disk }

// Add adds a message, and returns the disks when they are complete.
func (t *DisksTold) Add(m *Message) ([]Disk, error) {
	if m.Total > MaxPlugs || len(t.disks)+len(m.Disks) > m.Total {
		return nil, fmt.Errorf("the source tells of %d disks and more, of %d", len(t.disks)+len(m.Disks), m.Total)
	}
	for i := range m.Disks {
		if err := m.Disks[i].Check(); err != nil {
			return nil, err
		}
	}
	if t.disks = append(t.disks, m.Disks...); len(t.disks) < m.Total {
		return nil, nil
	}
	return t.disks, nil
}

// Write sends one frame with one call of w.Write.
func Write(w io.Writer, frame any) error {
	text, err := json.Marshal(frame)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	if len(text) > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is longer than the %d that are allowed", len(text), MaxFrame)
	}
	if _, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)); err != nil {
		return fmt.Errorf("sending a frame: %w", err)
	}
	return nil
}

// Read reads one frame from r, and no byte after it. It returns io.EOF if the connection ends before the frame.
func Read(r io.Reader, frame any) error {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return fmt.Errorf("reading a frame: %w", err)
	}
	length := binary.BigEndian.Uint16(head[:])
	if length > MaxFrame {
		return fmt.Errorf("a frame of %d bytes is longer than the %d that are allowed", length, MaxFrame)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("reading a frame: %w", err)
	}
	if err := json.Unmarshal(text, frame); err != nil {
		return fmt.Errorf("a frame is not what it must be: %w", err)
	}
	return nil
}

// ParseAddress accepts only an IP address and a port, since another node writes it: nothing is resolved.
func ParseAddress(text string) (netip.AddrPort, error) {
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("the target's address %.100q must be an IP address and a port", text)
	}
	if ip := address.Addr(); address.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("the target's address %s is none that can be called", text)
	}
	return address, nil
}
