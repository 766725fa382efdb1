# The guest that the node probe runs: a boot sector and the sectors that it loads.
#
# It goes from real mode through protected mode to long mode, does what every
# operating system does on its way (port I/O, memory-mapped I/O, timer interrupts,
# starting the second CPU), and writes one letter to isa-debugcon for each stage
# that it has reached. Its end is a write to isa-debug-exit: EXIT_DONE, or what
# went wrong. The letters and the numbers are those of stages.go.
#
# Assembled for address 0x7c00. uefi.S puts the same bytes there and enters at
# protected.

.set DEBUGCON,   0xe9           # isa-debugcon; reads as its own address
.set DEBUG_EXIT, 0xf4           # isa-debug-exit

.set EXIT_DONE,       0x2a
.set EXIT_DISK,       0x30      # the BIOS could not read the rest of the image
.set EXIT_PORT,       0x31      # port I/O answers wrongly
.set EXIT_LONG_MODE,  0x32      # the CPU has no long mode
.set EXIT_MMIO,       0x33      # memory-mapped I/O answers wrongly
.set EXIT_EXCEPTION,  0x40      # + the exception's vector

# Memory: all below the image is stack, all above 64 KiB is tables.
.set BASE,        0x7c00
.set TABLES,      0x10000       # PML4, page-directory pointers, 4 page directories
.set TABLES_END,  0x16000
.set IDT,         0x17000
.set IDT_END,     0x18000
.set STACK,       0x20000       # of the first CPU in long mode
.set STACK2,      0x22000       # of the second

.set CODE32, 0x08
.set DATA,   0x10
.set CODE64, 0x18

# Where memory-mapped devices are: the local APIC and the I/O APIC, which KVM
# emulates in the kernel, and the HPET, which QEMU emulates.
.set LAPIC,   0xfee00000
.set LAPIC_ID,       0x20
.set LAPIC_EOI,      0xb0
.set LAPIC_SPURIOUS, 0xf0
.set LAPIC_ICR,      0x300
.set LAPIC_TIMER,    0x320
.set LAPIC_LINT0,    0x350
.set LAPIC_COUNT,    0x380
.set LAPIC_DIVIDE,   0x3e0
.set IOAPIC,  0xfec00000
.set HPET,    0xfed00000

.set VECTOR_PIT,   0x20         # interrupt line 0 of the PIC
.set VECTOR_LAPIC, 0x30
.set VECTOR_SPURIOUS, 0xff

.macro stage letter
        movb    $\letter, %al
        outb    %al, $DEBUGCON
.endm

.macro leave code
        movb    $\code, %al
        outb    %al, $DEBUG_EXIT
99:     cli
        hlt
        jmp     99b
.endm

        .text
        .globl _start

# ---- real mode ----
        .code16
_start:
        cli
        cld
        ljmp    $0, $1f
1:      xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $BASE, %sp
        stage   'r'
        inb     $DEBUGCON, %al
        cmpb    $DEBUGCON, %al
        jne     bad_port
        movw    $packet, %si    # the BIOS has left the disk's number in %dl
        movb    $0x42, %ah
        sti
        int     $0x13
        cli
        jc      bad_disk
        lgdt    gdt_pointer
        movl    %cr0, %eax
        orl     $1, %eax        # PE
        movl    %eax, %cr0
        ljmp    $CODE32, $protected

bad_disk:
        leave   EXIT_DISK
bad_port:
        leave   EXIT_PORT

        .balign 4
packet: .byte   16, 0           # INT 13h, function 42h: read sectors by their number
        .word   (image_end - _start) / 512 - 1
        .word   BASE + 512, 0
        .quad   1

        .balign 8
gdt:    .quad   0
        .quad   0x00cf9a000000ffff      # CODE32: flat
        .quad   0x00cf92000000ffff      # DATA: flat
        .quad   0x00af9a000000ffff      # CODE64
        .org    0x1f0           # uefi.S knows this place
gdt_pointer:
        .word   . - gdt - 1
        .long   gdt, 0
        .org    510
        .word   0xaa55

# ---- protected mode, at 0x7e00: uefi.S enters here ----
        .code32
protected:
        movw    $DATA, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movl    $STACK, %esp
        stage   'p'
        call    has_long_mode
        call    identity_map
        call    enter_paging
        ljmp    $CODE64, $long

has_long_mode:
        movl    $0x80000000, %eax
        cpuid
        cmpl    $0x80000001, %eax
        jb      1f
        movl    $0x80000001, %eax
        cpuid
        btl     $29, %edx
        jnc     1f
        ret
1:      leave   EXIT_LONG_MODE

# identity_map maps the first 4 GiB, in pages of 2 MiB, to themselves.
identity_map:
        cld
        movl    $TABLES, %edi
        movl    $(TABLES_END - TABLES) / 4, %ecx
        xorl    %eax, %eax
        rep stosl
        movl    $TABLES + 0x1000 + 3, TABLES            # present, writable
        movl    $TABLES + 0x2000 + 3, %eax
        movl    $TABLES + 0x1000, %edi
        movl    $4, %ecx
1:      movl    %eax, (%edi)
        addl    $0x1000, %eax
        addl    $8, %edi
        loop    1b
        movl    $0x83, %eax                             # present, writable, large
        movl    $TABLES + 0x2000, %edi
        movl    $2048, %ecx
2:      movl    %eax, (%edi)
        addl    $0x200000, %eax
        addl    $8, %edi
        loop    2b
        ret

# enter_paging turns on paging in its 64-bit form; both CPUs come through here.
enter_paging:
        movl    $0x20, %eax     # PAE, and nothing that firmware may have left
        movl    %eax, %cr4
        movl    $TABLES, %eax
        movl    %eax, %cr3
        movl    $0xc0000080, %ecx
        rdmsr
        orl     $0x100, %eax    # LME
        wrmsr
        movl    %cr0, %eax
        orl     $0x80000000, %eax
        movl    %eax, %cr0
        ret

# ---- the second CPU begins here, in real mode at CS = 0x800 ----
        .org    0x400
        .code16
second:
        cli
        cld
        ljmp    $0, $1f
1:      xorw    %ax, %ax
        movw    %ax, %ds
        stage   'a'
        lgdt    gdt_pointer
        movl    %cr0, %eax
        orl     $1, %eax
        andl    $0x9fffffff, %eax       # caches on
        movl    %eax, %cr0
        ljmp    $CODE32, $1f
        .code32
1:      movw    $DATA, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movl    $STACK2, %esp
        call    enter_paging
        ljmp    $CODE64, $1f
        .code64
1:      lidt    idt_pointer
        stage   'c'
        lock incl second_runs
1:      cli
        hlt
        jmp     1b

# ---- long mode ----
long:
        movw    $DATA, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movq    $STACK, %rsp
        stage   'l'
        call    set_up_interrupts
        call    reach_devices
        stage   'm'
        call    pit_interrupt
        stage   't'
        call    lapic_interrupt
        stage   'i'
        call    start_second
        leave   EXIT_DONE

# set_gate makes entry %ecx of the interrupt table lead to %rax.
set_gate:
        movl    %ecx, %edi
        shll    $4, %edi
        addl    $IDT, %edi
        movw    %ax, (%rdi)
        movw    $CODE64, 2(%rdi)
        movw    $0x8e00, 4(%rdi)        # an interrupt gate, present
        shrl    $16, %eax
        movw    %ax, 6(%rdi)
        movq    $0, 8(%rdi)
        ret

set_up_interrupts:
        xorl    %ecx, %ecx
1:      movl    %ecx, %eax
        shll    $4, %eax
        addl    $exceptions, %eax
        cmpl    $32, %ecx
        jb      2f
        movl    $ignored, %eax
2:      call    set_gate
        incl    %ecx
        cmpl    $256, %ecx
        jb      1b
        movl    $VECTOR_PIT, %ecx
        movl    $pit_ticked, %eax
        call    set_gate
        movl    $VECTOR_LAPIC, %ecx
        movl    $lapic_ticked, %eax
        call    set_gate
        lidt    idt_pointer
        ret

# Each exception ends the guest with its own code.
        .balign 16
exceptions:
.set vector, 0
.rept 32
        movb    $EXIT_EXCEPTION + vector, %al
        jmp     exception
        .balign 16
.set vector, vector + 1
.endr
exception:
        outb    %al, $DEBUG_EXIT
1:      cli
        hlt
        jmp     1b

ignored:
        iretq

pit_ticked:
        pushq   %rax
        incl    pit_ticks
        movb    $0x20, %al      # end of interrupt
        outb    %al, $0x20
        popq    %rax
        iretq

lapic_ticked:
        pushq   %rax
        incl    lapic_ticks
        movl    $LAPIC, %eax
        movl    $0, LAPIC_EOI(%rax)
        popq    %rax
        iretq

# reach_devices reads and writes the memory of the local APIC, of the I/O APIC and
# of the HPET.
reach_devices:
        movl    $0x1b, %ecx     # IA32_APIC_BASE
        rdmsr
        btl     $10, %eax
        jnc     1f
        andl    $0xfffff3ff, %eax       # firmware left x2APIC on; the way back is through off
        wrmsr
1:      orl     $0x800, %eax
        wrmsr
        movl    $LAPIC, %ebx
        movl    $0x100 + VECTOR_SPURIOUS, LAPIC_SPURIOUS(%rbx)
        movl    LAPIC_SPURIOUS(%rbx), %eax
        andl    $0x1ff, %eax
        cmpl    $0x100 + VECTOR_SPURIOUS, %eax
        jne     bad_mmio
        movl    $0x700, LAPIC_LINT0(%rbx)       # the PIC's interrupts come in here
        movl    $IOAPIC, %ebx
        movl    $0x11, (%rbx)   # upper half of the first redirection: its destination
        movl    $0x05000000, 0x10(%rbx)
        movl    $0x10, (%rbx)
        movl    $0x10000, 0x10(%rbx)            # lower half: masked
        movl    $0x11, (%rbx)
        movl    0x10(%rbx), %eax
        shrl    $24, %eax
        cmpl    $5, %eax
        jne     bad_mmio
        movl    $HPET, %ebx
        movl    (%rbx), %eax    # the vendor is Intel
        shrl    $16, %eax
        cmpl    $0x8086, %eax
        jne     bad_mmio
        movl    $1, 0x10(%rbx)  # let it count, and wait until it does
        movl    0xf0(%rbx), %eax
1:      pause
        cmpl    0xf0(%rbx), %eax
        je      1b
        ret
bad_mmio:
        leave   EXIT_MMIO

# pit_interrupt takes interrupts of the programmable timer, which come through the
# PIC: port I/O. Two, so that the first has been acknowledged.
pit_interrupt:
        movb    $0x11, %al      # both PICs anew
        outb    %al, $0x20
        outb    %al, $0xa0
        movb    $VECTOR_PIT, %al
        outb    %al, $0x21
        movb    $VECTOR_PIT + 8, %al
        outb    %al, $0xa1
        movb    $4, %al
        outb    %al, $0x21
        movb    $2, %al
        outb    %al, $0xa1
        movb    $1, %al
        outb    %al, $0x21
        outb    %al, $0xa1
        movb    $0xff, %al
        outb    %al, $0xa1
        movb    $0xfe, %al      # only line 0 is open
        outb    %al, $0x21
        movb    $0x34, %al      # counter 0 at 1193182 Hz / 1193 = 1 kHz
        outb    %al, $0x43
        movb    $0xa9, %al
        outb    %al, $0x40
        movb    $0x04, %al
        outb    %al, $0x40
1:      cli
        cmpl    $2, pit_ticks
        jae     2f
        sti
        hlt
        jmp     1b
2:      movb    $0xff, %al
        outb    %al, $0x21
        ret

# lapic_interrupt takes one interrupt of the local APIC's own timer.
lapic_interrupt:
        movl    $LAPIC, %ebx
        movl    $0x0b, LAPIC_DIVIDE(%rbx)       # by one
        movl    $VECTOR_LAPIC, LAPIC_TIMER(%rbx)
        movl    $100000, LAPIC_COUNT(%rbx)
1:      cli
        cmpl    $1, lapic_ticks
        jae     2f
        sti
        hlt
        jmp     1b
2:      movl    $0x10000, LAPIC_TIMER(%rbx)     # masked
        ret

# start_second sends INIT and twice STARTUP to all CPUs but this one, and waits for
# the word of the second that it has reached long mode.
start_second:
        movl    $LAPIC, %ebx
        movl    $0xc4500, LAPIC_ICR(%rbx)
        call    wait_a_little
        movl    $0xc4600 + 0x8000 / 4096, LAPIC_ICR(%rbx)
        call    wait_a_little
        cmpl    $0, second_runs
        jne     2f
        movl    $0xc4600 + 0x8000 / 4096, LAPIC_ICR(%rbx)
1:      pause
        cmpl    $0, second_runs
        je      1b
2:      ret

# wait_a_little is ten milliseconds by the HPET, which counts every ten nanoseconds.
wait_a_little:
        movl    $HPET, %edx
        movl    0xf0(%rdx), %ecx
1:      pause
        movl    0xf0(%rdx), %eax
        subl    %ecx, %eax
        cmpl    $1000000, %eax
        jb      1b
        ret

        .balign 8
idt_pointer:
        .word   IDT_END - IDT - 1
        .quad   IDT
        .balign 4
pit_ticks:      .long 0
lapic_ticks:    .long 0
second_runs:    .long 0

        .balign 512
image_end:
