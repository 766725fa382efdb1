package stderrtail

import (
	"io"
	"strings"
	"testing"
)

func TestTheTailKeepsTheLastWords(t *testing.T) {
	var log strings.Builder
	tail := &Tail{Also: &log}
	for range 300 {
		_, _ = tail.Write([]byte("qemu: warning: a feature is missing\n"))
	}
	if got := tail.Sentence(); len(got) > maxSentence || !strings.HasSuffix(got, "a feature is missing") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	_, _ = tail.Write([]byte("qemu: cannot open the disk\n\n"))
	if got := tail.Sentence(); !strings.HasSuffix(got, "qemu: cannot open the disk") {
		t.Errorf("%q", got)
	}
	if log.Len() < 10000 {
		t.Error("the log does not have everything")
	}
}

// QEMU 7.2 wrote this on a host whose KVM does not know the instruction fwait.
const internalError = `KVM internal error. Suberror: 1
extra data[0]: 0x0000000000000001
extra data[1]: 0xed742dd9e3db9b0f
emulation failure
EAX=00000000 EBX=00807000 ECX=00000001 EDX=00807154
ESI=00000000 EDI=00000000 EBP=0081fff0 ESP=0081fe70
EIP=fffced45 EFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0
ES =0008 00000000 ffffffff 00c09300 DPL=0 DS   [-WA]
LDT=0000 00000000 0000ffff 00008200 DPL=0 LDT
TR =0000 00000000 0000ffff 00008b00 DPL=0 TSS32-busy
GDT=     ffffff30 0000001f
IDT=     0081fec8 0000010f
CR0=40000033 CR2=00000000 CR3=00000000 CR4=00000640
DR0=0000000000000000 DR1=0000000000000000
EFER=0000000000000000
Code=66 90 90 cd 03 c3 66 90 <9b> db e3 d9 2d 74 ed fc ff b8 01
`

func TestADumpOfRegistersIsLeftOut(t *testing.T) {
	tail := &Tail{Also: &strings.Builder{}}
	_, _ = tail.Write([]byte(internalError))
	if got, want := tail.Sentence(), "KVM internal error. Suberror: 1; emulation failure"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTracesAreLeftOut(t *testing.T) {
	tail := &Tail{Also: io.Discard}
	text := "2026-11-23T11:46:12.123456Z qemu: it broke @10:15\n25219@1795434348.848599:vm_state_notify running 0 reason 7 (shutdown)\n"
	if _, err := tail.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if got, want := tail.Sentence(), "2026-11-23T11:46:12.123456Z qemu: it broke @10:15"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWhatQEMUSaysOfAnErrorIsNotLostAmongRegisters(t *testing.T) {
	tail := &Tail{Also: io.Discard}
	text := "KVM internal error. Suberror: 1\nemulation failure\n"
	for range 40 {
		text += "EAX=00000000 EBX=00000000 ECX=00000000 EDX=00000663\nES =0000 00000000 0000ffff 00009300\n"
	}
	if _, err := tail.Write([]byte(text + "CR0=60000010 CR2=00000000\nEFER=0000000000000000\nCode=00 00 <ff> ff\n")); err != nil {
		t.Fatal(err)
	}
	if got := tail.Sentence(); got != "KVM internal error. Suberror: 1; emulation failure" {
		t.Errorf("the sentence is %q", got)
	}
}
