// Package rfb takes one picture of a screen by the Remote Framebuffer protocol (RFC 6143), version 3.8, as a viewer that
// shares the screen: without authentication, which KubeVirt's streams have passed, by the raw encoding, of screens that
// change their size, as a guest's does while it boots. It must not open a connection.
package rfb

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
)

const (
	version      = "RFB 003.008\n"
	securityNone = 1
	encodingRaw  = 0
	// desktopSize is the pseudo-encoding of a rectangle with the screen's new size. A server may paint less than the size
	// it named first if its client does not support it.
	desktopSize = -223
)

const (
	setPixelFormat     = 0
	setEncodings       = 2
	updateRequest      = 3
	pointerEvent       = 5
	framebufferUpdate  = 0
	setColorMapEntries = 1
	bell               = 2
	serverCutText      = 3
)

const maxPixels = 7680 * 4320

// Options configure Picture.
type Options struct {
	// MoveCursor moves the pointer first, which wakes a screen saver.
	MoveCursor bool
	// MaxPixels bounds the memory that a server can make this process allocate, at four bytes each; 0 is an 8K screen.
	MaxPixels int
}

// Picture takes a picture of the screen at the other end of the connection, which is unusable afterwards.
func Picture(conn io.ReadWriter, options Options) (image.Image, error) {
	s := &session{conn: conn, maxPixels: cmp.Or(options.MaxPixels, maxPixels)}
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("beginning to look at the screen: %w", err)
	}
	if err := s.ask(options); err != nil {
		return nil, fmt.Errorf("asking for the screen: %w", err)
	}
	if err := s.receive(); err != nil {
		return nil, fmt.Errorf("receiving the screen: %w", err)
	}
	return s.screen, nil
}

type session struct {
	conn   io.ReadWriter
	screen *image.NRGBA
	// missing pixels have not been painted.
	missing   int
	maxPixels int
}

func (s *session) begin() error {
	greeting := make([]byte, len(version))
	if _, err := io.ReadFull(s.conn, greeting); err != nil {
		return err
	}
	if !bytes.HasPrefix(greeting, []byte("RFB ")) {
		return fmt.Errorf("the server greets with %q, which is not RFB", greeting)
	}
	if _, err := io.WriteString(s.conn, version); err != nil {
		return err
	}
	if err := s.authenticate(); err != nil {
		return err
	}
	const shared = 1
	if _, err := s.conn.Write([]byte{shared}); err != nil {
		return err
	}
	var server struct {
		Width, Height uint16
		Format        [16]byte
		NameLength    uint32
	}
	if err := s.read(&server); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, s.conn, int64(server.NameLength)); err != nil {
		return err
	}
	return s.resize(server.Width, server.Height)
}

func (s *session) resize(width, height uint16) error {
	s.missing = int(width) * int(height)
	if s.missing > s.maxPixels {
		return fmt.Errorf("the screen of %d by %d pixels is too large", width, height)
	}
	s.screen = image.NewNRGBA(image.Rect(0, 0, int(width), int(height)))
	return nil
}

func (s *session) authenticate() error {
	var count uint8
	if err := s.read(&count); err != nil {
		return err
	}
	if count == 0 {
		return s.refusal()
	}
	offered := make([]byte, count)
	if _, err := io.ReadFull(s.conn, offered); err != nil {
		return err
	}
	if !bytes.Contains(offered, []byte{securityNone}) {
		return fmt.Errorf("the screen asks for a password (security types %v)", offered)
	}
	if _, err := s.conn.Write([]byte{securityNone}); err != nil {
		return err
	}
	var result uint32
	if err := s.read(&result); err != nil {
		return err
	}
	if result != 0 {
		return s.refusal()
	}
	return nil
}

func (s *session) refusal() error {
	var length uint32
	if err := s.read(&length); err != nil {
		return err
	}
	reason, err := io.ReadAll(io.LimitReader(s.conn, int64(min(length, 1024))))
	if err != nil {
		return err
	}
	return fmt.Errorf("the server refuses: %s", reason)
}

// ask requests the whole screen as 32-bit pixels: blue, green, red, nothing.
func (s *session) ask(options Options) error {
	format := [16]byte{32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0}
	messages := []any{
		[]byte{setPixelFormat, 0, 0, 0}, format,
		[]byte{setEncodings, 0}, uint16(2), int32(encodingRaw), int32(desktopSize),
	}
	if options.MoveCursor {
		size := s.screen.Rect.Max
		messages = append(messages, []byte{pointerEvent, 0}, uint16(size.X-1), uint16(size.Y-1))
	}
	if err := s.write(messages...); err != nil {
		return err
	}
	return s.askAll()
}

func (s *session) askAll() error {
	const whole = 0 // not only changes
	size := s.screen.Rect.Max
	return s.write([]byte{updateRequest, whole}, uint16(0), uint16(0), uint16(size.X), uint16(size.Y))
}

// A server answers by one or more updates.
func (s *session) receive() error {
	for s.missing > 0 {
		var kind uint8
		if err := s.read(&kind); err != nil {
			return err
		}
		switch kind {
		case framebufferUpdate:
			if err := s.update(); err != nil {
				return err
			}
		case bell:
		case setColorMapEntries:
			var header struct {
				_            uint8
				First, Count uint16
			}
			if err := s.skip(&header, func() int64 { return 6 * int64(header.Count) }); err != nil {
				return err
			}
		case serverCutText:
			var header struct {
				_      [3]byte
				Length uint32
			}
			if err := s.skip(&header, func() int64 { return int64(header.Length) }); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the server sent a message of unknown type %d", kind)
		}
	}
	return nil
}

// The screen may get a new size.
func (s *session) update() error {
	var header struct {
		_     uint8
		Count uint16
	}
	if err := s.read(&header); err != nil {
		return err
	}
	if header.Count == 0 {
		return errors.New("the server sent an update without content")
	}
	resized := false
	for range header.Count {
		var r rectangle
		if err := s.read(&r); err != nil {
			return err
		}
		resized = resized || r.Encoding == desktopSize
		if err := s.apply(r); err != nil {
			return err
		}
	}
	if resized {
		return s.askAll()
	}
	return nil
}

type rectangle struct {
	X, Y, Width, Height uint16
	Encoding            int32
}

func (s *session) apply(r rectangle) error {
	area := image.Rect(int(r.X), int(r.Y), int(r.X)+int(r.Width), int(r.Y)+int(r.Height))
	switch {
	case r.Encoding == desktopSize:
		return s.resize(r.Width, r.Height)
	case r.Encoding != encodingRaw:
		return fmt.Errorf("the server sent the encoding %d, which was not asked for", r.Encoding)
	case area.Empty():
		return errors.New("the server sent an update without content")
	case !area.In(s.screen.Rect):
		return fmt.Errorf("the server painted %v, which is outside its screen of %v", area, s.screen.Rect.Max)
	}
	line := make([]byte, 4*area.Dx())
	for y := area.Min.Y; y < area.Max.Y; y++ {
		if _, err := io.ReadFull(s.conn, line); err != nil {
			return err
		}
		for x := range area.Dx() {
			pixel := line[4*x : 4*x+4]
			// The server may have sent a part of the area before: only a transparent pixel is missing.
			if s.screen.NRGBAAt(area.Min.X+x, y).A == 0 {
				s.missing--
			}
			s.screen.SetNRGBA(area.Min.X+x, y, color.NRGBA{R: pixel[2], G: pixel[1], B: pixel[0], A: 255})
		}
	}
	return nil
}

func (s *session) write(messages ...any) error {
	var buffer bytes.Buffer
	for _, message := range messages {
		if err := binary.Write(&buffer, binary.BigEndian, message); err != nil {
			return err
		}
	}
	_, err := s.conn.Write(buffer.Bytes())
	return err
}

func (s *session) read(into any) error { return binary.Read(s.conn, binary.BigEndian, into) }

func (s *session) skip(header any, length func() int64) error {
	if err := s.read(header); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, s.conn, length())
	return err
}
