package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// pulseConfig has the guest's name and its disks (vda), separated by spaces. A guest has a pulse if cloud-init's
	// data contain this file.
	pulseConfig   = "/etc/pulse"
	pulseAddress  = ":7778"
	pulseInterval = 250 * time.Millisecond
	// leaseBlocks is the number of blocks at the end of a disk to which beats are written in turn.
	leaseBlocks = 8
)

// pulse counts, and writes each number to the guest's disks. Its answers show whether the guest runs, and whether
// another guest has written to its disks.
type pulse struct {
	name, boot string
	leases     []*lease

	mu      sync.Mutex
	beats   uint64
	trouble error
}

func servePulse(ctx context.Context) error {
	config, err := os.ReadFile(pulseConfig)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	words := strings.Fields(string(config))
	if err != nil || len(words) == 0 {
		return fmt.Errorf("reading the guest's name and disks from %s: %w", pulseConfig, err)
	}
	p := &pulse{name: words[0], boot: readText("/proc/sys/kernel/random/boot_id")}
	for _, disk := range words[1:] {
		l, err := newLease("/dev/" + disk)
		if err != nil {
			return err
		}
		p.leases = append(p.leases, l)
	}
	var listen net.ListenConfig
	conn, err := listen.ListenPacket(ctx, "udp", pulseAddress)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", pulseAddress, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go p.answer(conn)
	p.beat(ctx)
	return nil
}

// beat counts until the context ends.
func (p *pulse) beat(ctx context.Context) {
	ticker := time.NewTicker(pulseInterval)
	defer ticker.Stop()
	for number := uint64(1); ; number++ {
		var errs []error
		for _, l := range p.leases {
			errs = append(errs, l.renew(number))
		}
		err := errors.Join(errs...)
		p.mu.Lock()
		p.beats = number
		if p.trouble == nil {
			p.trouble = err // the first error explains the others
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *pulse) answer(conn net.PacketConn) {
	question := make([]byte, 64)
	for {
		n, from, err := conn.ReadFrom(question)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = conn.WriteTo([]byte(p.says(string(question[:n]))), from) // a client repeats its question
		}
	}
}

// The answer is the question, the guest, the boot, the beats, and the first error.
func (p *pulse) says(question string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := fmt.Sprintf("%s %s %s %d", question, p.name, p.boot, p.beats)
	if p.trouble != nil {
		answer += " " + strings.ReplaceAll(p.trouble.Error(), "\n", "; ")
	}
	return answer
}

// lease is a few blocks at the end of a disk to which only this guest may write. They contain a time, too: two copies
// of one guest count the same numbers for a moment.
type lease struct {
	disk       *os.File
	from       int64
	held, read []byte
}

// newLease takes the end of a disk over from any earlier owner.
func newLease(device string) (*lease, error) {
	disk, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the disk: %w", err)
	}
	size, err := disk.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("asking for the disk's size: %w", err)
	}
	const length = leaseBlocks * soakBlock
	l := &lease{disk: disk, from: (size/soakBlock)*soakBlock - length, held: alignedMemory(length), read: alignedMemory(length)}
	if l.from < 0 {
		return nil, fmt.Errorf("%s is too small: %d bytes", device, size)
	}
	for slot := range int64(leaseBlocks) {
		if err := l.write(slot, 0); err != nil {
			return nil, fmt.Errorf("writing to %s: %w", device, err)
		}
	}
	return l, nil
}

// renew writes the next block, if the disk still has the earlier ones.
func (l *lease) renew(number uint64) error {
	if _, err := l.disk.ReadAt(l.read, l.from); err != nil {
		return fmt.Errorf("beat %d: reading %s: %w", number, l.disk.Name(), err)
	}
	for at := 0; at < len(l.held); at += soakBlock {
		if want, got := l.held[at:at+soakBlock], l.read[at:at+soakBlock]; !bytes.Equal(want, got) {
			return fmt.Errorf("beat %d: block %d of the lease on %s holds beat %d of %d, want beat %d of %d", number, at/soakBlock,
				l.disk.Name(), binary.LittleEndian.Uint64(got), binary.LittleEndian.Uint64(got[8:]), binary.LittleEndian.Uint64(want), binary.LittleEndian.Uint64(want[8:]))
		}
	}
	if err := l.write(int64(number%leaseBlocks), number); err != nil {
		return fmt.Errorf("beat %d: writing to %s: %w", number, l.disk.Name(), err)
	}
	return nil
}

func (l *lease) write(slot int64, number uint64) error {
	block := l.held[slot*soakBlock : (slot+1)*soakBlock]
	fillBlock(block, number)
	binary.LittleEndian.PutUint64(block[8:], uint64(time.Now().UnixNano()))
	if _, err := l.disk.WriteAt(block, l.from+slot*soakBlock); err != nil {
		return err
	}
	return l.disk.Sync()
}
