// Package migrationwire is the protocol between the virt-handlers of the source and of
// the target of a migration: port, header, answer and facts.
//
// It owns the messages, their encoding and their bounds, and how versions understand each
// other. It must not open a connection or judge a migration.
//
// Every connection is TLS of its own; both sides show the certificate of their node
// (nodecert). The source calls:
//
//	source -> Header{control}   target -> Answer     then Messages in both directions
//	source -> Header{stream}    target -> Answer     then what QEMU and QEMU say to each other
//	source -> Header{disks}     target -> Answer     then the same, in the protocol of NBD
//
// A control connection is kept up for as long as the migration is wanted, and called anew
// whenever it ends. Messages are facts that stay true, so each side says all of its own
// again on every new connection, and one that comes late or twice does no harm. A stream
// belongs to one connection of QEMU's and ends with it.
//
// A frame is two bytes of length, the higher one first, and a JSON object.
//
// Versions: fields and kinds that a reader does not know are passed over, so a newer
// version may add to both. Each side says its Version first (Header, Answer), and speaks
// the lower of the two. Whatever the next release must not understand as this one does
// needs another Channel.
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

// Protocol is what both sides of a connection agree on in the TLS handshake (ALPN).
const Protocol = "drydock-migration/1"

// Version is what this program speaks; Oldest is what it still understands.
const (
	Version = 3
	Oldest  = 1
	// CopiesDisks is the first whose source copies the disks that move with a guest.
	CopiesDisks = 2
	// AgreesTransport is the first that offers a Transport. One before it sends, and takes, the guest on
	// one connection.
	AgreesTransport = 3
)

// Bounds. Both sides keep them, and hold nobody to less.
const (
	// MaxFrame bounds the JSON of one frame in bytes.
	MaxFrame = 4096
	// MaxText bounds a sentence in an Answer in bytes. However JSON has to write them,
	// they fit into a frame.
	MaxText = 512
	// MaxStreams are the connections that QEMU has for one migration: its main one, and
	// at most 16 of multifd.
	MaxStreams  = 1 + MaxChannels
	MaxChannels = 16
	// MaxDisks are those that QEMU has for the disks of one migration: one for each.
	MaxDisks = 64
	// Greeting is how long a connection may take from its first byte to its Answer.
	Greeting = 5 * time.Second
	// AliveEvery is the longest pause between two messages of a side on the control
	// connection; Silence is after how long without one the other side counts as gone.
	AliveEvery = time.Second
	Silence    = 4 * time.Second
)

// Channel is what a connection is for.
type Channel string

// Channels.
const (
	Control Channel = "control"
	Stream  Channel = "stream"
	// Disks is for the content of one disk. A virt-handler from before it refuses it.
	Disks Channel = "disks"
)

// MaxOpen is how many connections of a channel one migration may have; 0 for control, of which
// the newest counts, and for what is no channel.
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
	Version int `json:"version"`
	// MigrationUID is the UID of the VirtualMachineInstanceMigration.
	MigrationUID string  `json:"migrationUID"`
	VMIUID       string  `json:"vmiUID"`
	Namespace    string  `json:"namespace"`
	Name         string  `json:"name"`
	Channel      Channel `json:"channel"`
	// CopiesClaims means that the source copies the disks whose claims change with the migration. A source
	// from before it does not say so, and would hand its guest over without them (decision 341).
	CopiesClaims bool `json:"copiesClaims,omitempty"`
	// CopiesPlugged means the same of the disks that were plugged into the guest (decision 343).
	CopiesPlugged bool `json:"copiesPlugged,omitempty"`
}

// Check returns an error that says what is wrong with the header by itself.
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

// Answer is the target's one frame after the Header. When it refuses, the connection ends
// with it.
type Answer struct {
	Version int `json:"version"`
	// Refusal is why, as a sentence; empty when the connection is accepted.
	Refusal string `json:"refusal,omitempty"`
}

// Refuse is the answer to what is refused for a reason.
func Refuse(reason error) Answer { return Answer{Version: Version, Refusal: printable(reason.Error())} }

// Err is the refusal as an error, nil for none. The sentence is another node's.
func (a *Answer) Err() error {
	if a.Refusal == "" {
		return nil
	}
	return errors.New(printable(a.Refusal))
}

// printable is the beginning of a text, without what a terminal or a log would take for
// something else.
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

// Kind is a fact about a migration, or that its sender lives.
type Kind string

// Kinds. Facts stay true, whatever happens afterwards.
const (
	// Alive says nothing but that the sender is there.
	Alive Kind = "Alive"
	// Plugs is the source's: Message.Disks are some of the disks that its guest has beside those
	// that it was started with.
	Plugs Kind = "Plugs"
	// Plugged is the target's: its QEMU has all of these disks.
	Plugged Kind = "Plugged"
	// Offer is the source's: Message.Transport is how it would have QEMU send the guest. Agreed is the
	// target's: its QEMU takes the guest in that way, which is the offer or less. Ready comes after it.
	Offer  Kind = "Offer"
	Agreed Kind = "Agreed"
	// Released is the source's: its QEMU was seen with the migration completed, or is
	// known to have ended after that. The target may run.
	Released Kind = "Released"
	// Ready is the target's: its QEMU takes the migration's streams.
	Ready Kind = "Ready"
	// Ran is the target's: its guest was let run, or is about to be. The source must
	// not run again.
	Ran Kind = "Ran"
	// Never is the target's: its QEMU has ended and was never let run. The source may
	// run again.
	Never Kind = "Never"
)

// Side is one of the two virt-handlers of a migration.
type Side int

// Sides.
const (
	Source Side = iota + 1
	Target
)

// Speaker is the side whose fact it is; zero for what is no fact, or is not known.
func (k Kind) Speaker() Side {
	switch k {
	case Released, Plugs, Offer:
		return Source
	case Ready, Plugged, Agreed, Ran, Never:
		return Target
	}
	return 0
}

// Message is a frame on the control connection.
type Message struct {
	Kind         Kind   `json:"kind"`
	MigrationUID string `json:"migrationUID"`
	// Disks and Total go with Plugs: as many of them as fit into a frame, and how many there are in
	// all.
	Disks []Disk `json:"disks,omitempty"`
	Total int    `json:"total,omitempty"`
	// Transport goes with Offer and Agreed.
	Transport *Transport `json:"transport,omitempty"`
}

// Transport is how the guest goes from QEMU to QEMU. What a version does not know of, it has not.
type Transport struct {
	// Channels are the connections for memory beside the main one; 0 for none.
	Channels int `json:"channels,omitempty"`
	// PostCopy means that the guest may move before its memory.
	PostCopy bool `json:"postCopy,omitempty"`
}

// Check returns an error that says what is wrong with a transport by itself. Of a message without one, t is
// nil.
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
	// Bus and Number are where it is: a LUN of the SCSI controller, or the root port of a virtio
	// disk. Of a medium in a drive there is no bus.
	Bus    string `json:"bus,omitempty"`
	Number int    `json:"number,omitempty"`
}

// Bounds of plugged disks. Of the longest names, PlugsInFrame fit into a frame.
const (
	// MaxPlugs are the disks of one machine, PlugsInFrame those of one Message.
	MaxPlugs     = 512
	PlugsInFrame = 16
	// maxName and maxNumber bound what a Disk says.
	maxName   = 63
	maxNumber = 1024
)

// Check returns an error that says what is wrong with a disk by itself.
func (d *Disk) Check() error {
	if d.Volume == "" || len(d.Volume) > maxName || len(d.Bus) > maxName || d.Number < 0 || d.Number > maxNumber {
		return fmt.Errorf("there is no disk %.100q at %.20q %d", d.Volume, d.Bus, d.Number)
	}
	return nil
}

// SplitDisks returns the messages, but for their migration, that tell of all disks.
func SplitDisks(disks []Disk) []Message {
	var out []Message
	for part := range slices.Chunk(disks, PlugsInFrame) {
		out = append(out, Message{Kind: Plugs, Disks: part, Total: len(disks)})
	}
	return out
}

// DisksTold puts together what messages of one connection tell of disks.
type DisksTold struct{ disks []Disk }

// Add takes one more message, and returns the disks when it has told of all.
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

// Read takes one frame from r, and no byte after it. A connection that ends before the
// frame begins gives io.EOF.
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

// ParseAddress reads what a target has published as its address. It is another node's to
// write, so it is an IP address and a port and nothing that would have to be resolved.
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
