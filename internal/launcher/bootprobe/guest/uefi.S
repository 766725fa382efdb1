# The node probe's guest as a UEFI application: a PE32+ file that takes the machine
# from the firmware, puts the bytes of bios.S where they belong, goes back to
# protected mode and goes on there as bios.S does.
#
# Written so that it runs wherever the firmware has loaded it below 4 GiB: it needs
# no relocation.

.set DEBUGCON, 0xe9
.set BASE,     0x7c00
.set CODE32,   0x08
.set DATA,     0x10
.set GDT_POINTER, 0x7df0        # bios.S has it there
.set PROTECTED,   0x7e00        # and protected
.set SECTION,  0x1000           # where the one section begins in memory
.set HEADERS,  0x400            # and in the file

        .text
        .globl _start
_start:
        .ascii  "MZ"
        .org    0x3c
        .long   pe
        .org    0x40
.set pe, . - _start
        .ascii  "PE\0\0"
        .word   0x8664, 1       # x86-64, one section
        .long   0, 0, 0
        .word   optional_end - optional
        .word   0x0022          # an executable that knows large addresses
optional:
        .word   0x20b           # PE32+
        .byte   0, 0
        .long   text_end - text, 0, 0
        .long   SECTION + entry - text
        .long   SECTION
        .quad   0               # image base: any
        .long   SECTION, 0x200  # alignment in memory, in the file
        .word   0, 0, 0, 0, 0, 0
        .long   0
        .long   SECTION + 0x2000         # size of all in memory
        .long   HEADERS
        .long   0
        .word   10, 0           # subsystem: EFI application
        .quad   0, 0, 0, 0
        .long   0, 16
        .fill   16, 8, 0        # data directories: none
optional_end:
        .ascii  ".text\0\0\0"
        .long   text_end - text, SECTION
        .long   text_end - text, HEADERS
        .long   0, 0, 0
        .long   0xe0000020      # code that may be read, written and executed
# QEMU, which hands the file over as a kernel, takes the number of a kernel's setup
# sectors from here and wants them to be there.
        .org    0x1f1
        .byte   1
        .org    HEADERS

text:
        .code64
entry:
        cli
        cld
        movb    $'u', %al
        outb    %al, $DEBUGCON
        leaq    payload(%rip), %rsi
        movl    $BASE, %edi
        movl    $payload_end - payload, %ecx
        rep movsb
        lgdt    GDT_POINTER
        movl    $DATA, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movl    $BASE, %esp
        leaq    1f(%rip), %rax
        pushq   $CODE32
        pushq   %rax
        lretq
        .code32
1:      movl    %cr0, %eax
        andl    $0x7fffffff, %eax       # no paging, and so no long mode
        movl    %eax, %cr0
        movl    $0xc0000080, %ecx
        rdmsr
        andl    $0xfffffeff, %eax       # LME
        wrmsr
        movl    $PROTECTED, %eax
        jmp     *%eax

        .balign 16
payload:
        .incbin "bios.bin"
payload_end:
        .balign 512
text_end:
