package migrationproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/migrationwire"
)

func TestDisksReachTheirOwnSocket(t *testing.T) {
	p := meet(t)
	listener, err := p.targetDir.Listen(t.Context(), layout.DisksSocket, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	p.expectations.Expect(Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1",
		Target: Target{Facts: &Facts{}, DialDisks: func(ctx context.Context) (*net.UnixConn, error) { return p.targetDir.Dial(ctx, layout.DisksSocket) }},
	})
	p.forward(&Forward{Outgoing: p.outgoing(), Channel: migrationwire.Disks, Admit: ours})
	there := p.dialSource()
	here := accept(t, listener.UnixListener)
	passes(t, there, here, "a block")
	passes(t, here, there, "it is written")
}

func TestDisksAreRefusedWhereNoneAreCopied(t *testing.T) {
	p := meet(t)
	p.qemu()
	p.expect(&Facts{}, newEar())
	_, err := p.outgoing().Dial(t.Context(), migrationwire.Disks)
	if err == nil || !strings.Contains(err.Error(), "the migration copies no disks") {
		t.Errorf("the answer is %v", err)
	}
}

// A source that does not announce copied claims would hand the guest over without their content.
func TestASourceThatCopiesNoClaimsIsRefused(t *testing.T) {
	p := meet(t)
	target := Target{Facts: &Facts{}, Claims: true, Plugged: true, DialDisks: func(context.Context) (*net.UnixConn, error) { return nil, net.ErrClosed }}
	p.expectations.Expect(Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1", Target: target,
	})
	for _, channel := range []migrationwire.Channel{migrationwire.Control, migrationwire.Stream, migrationwire.Disks} {
		for _, claims := range []bool{false, true} {
			conn := p.raw()
			old := header
			old.Version, old.Channel, old.CopiesClaims, old.CopiesPlugged = migrationwire.Version, channel, claims, !claims
			if err := migrationwire.Write(conn, old); err != nil {
				t.Fatal(err)
			}
			var answer migrationwire.Answer
			if err := migrationwire.Read(conn, &answer); err != nil || !strings.Contains(answer.Refusal, "copied to other claims, which the source's virt-handler is too old for") {
				t.Errorf("%s: the answer is %+v (%v)", channel, answer, err)
			}
		}
	}
	conn, err := p.outgoing().Dial(t.Context(), migrationwire.Control)
	if err != nil {
		t.Fatalf("a source that copies them is refused: %v", err)
	}
	_ = conn.Close()
}

// An older source would hand the guest over without its disks.
func TestASourceThatCopiesNoDisksIsRefused(t *testing.T) {
	p := meet(t)
	p.expectations.Expect(Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1",
		Target: Target{Facts: &Facts{}, DialDisks: func(context.Context) (*net.UnixConn, error) { return nil, net.ErrClosed }},
	})
	conn := p.raw()
	old := header
	old.Version, old.Channel = migrationwire.CopiesDisks-1, migrationwire.Control
	if err := migrationwire.Write(conn, old); err != nil {
		t.Fatal(err)
	}
	var answer migrationwire.Answer
	if err := migrationwire.Read(conn, &answer); err != nil || !strings.Contains(answer.Refusal, "the source's virt-handler is too old") {
		t.Errorf("the answer is %+v, %v", answer, err)
	}
}

func TestAMigrationHasOnlySoManyDisks(t *testing.T) {
	var c calls
	for range migrationwire.MaxDisks {
		if _, err := c.stream("m", migrationwire.Disks); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.stream("m", migrationwire.Disks); err == nil {
		t.Error("there is one more")
	}
	end, err := c.stream("m", migrationwire.Stream)
	if err != nil {
		t.Errorf("memory has no way beside them: %v", err)
	}
	end()
}

// A target that accepts and does nothing would block the guest's writes.
func TestATargetThatDoesNotAnswerForADiskIsLetGo(t *testing.T) {
	p := meet(t)
	listener, err := p.targetDir.Listen(t.Context(), layout.DisksSocket, os.Geteuid())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	p.expectations.Expect(Expected{
		MigrationUID: header.MigrationUID, VMIUID: header.VMIUID, Namespace: header.Namespace, Name: header.Name, SourceNode: "node1",
		Target: Target{Facts: &Facts{}, DialDisks: func(ctx context.Context) (*net.UnixConn, error) { return p.targetDir.Dial(ctx, layout.DisksSocket) }},
	})
	f := &Forward{Outgoing: p.outgoing(), Channel: migrationwire.Disks, Admit: ours, Answers: time.Millisecond}
	p.forward(f)
	there := p.dialSource()
	defer func() { _ = accept(t, listener.UnixListener).Close() }()
	if _, err := there.Write([]byte("a block")); err != nil {
		t.Fatal(err)
	}
	if err := there.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("QEMU's connection says %v", err)
	}
	if err := f.Failure(); err == nil || !strings.Contains(err.Error(), "it has not answered in time") {
		t.Errorf("the reason is %v", err)
	}
}
