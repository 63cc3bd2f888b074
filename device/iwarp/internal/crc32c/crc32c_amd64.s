#include "textflag.h"

// The constants of a fold by d bits: x^(d+32) and x^(d-32) modulo the polynomial, both reflected and
// shifted by one, as the carry-less product of reflected numbers needs them.

DATA ·by2048<>+0(SB)/8, $0x0dcb17aa4
DATA ·by2048<>+8(SB)/8, $0x0b9e02b86
GLOBL ·by2048<>(SB), RODATA|NOPTR, $16

DATA ·by1536<>+0(SB)/8, $0x0a87ab8a8
DATA ·by1536<>+8(SB)/8, $0x0ab7aff2a
GLOBL ·by1536<>(SB), RODATA|NOPTR, $16

DATA ·by1024<>+0(SB)/8, $0x06992cea2
DATA ·by1024<>+8(SB)/8, $0x00d3b6092
GLOBL ·by1024<>(SB), RODATA|NOPTR, $16

DATA ·by512<>+0(SB)/8, $0x0740eef02
DATA ·by512<>+8(SB)/8, $0x09e4addf8
GLOBL ·by512<>(SB), RODATA|NOPTR, $16

// The folds of the four parts of 512 bits onto the last.
DATA ·lanes<>+0(SB)/8, $0x01c291d04
DATA ·lanes<>+8(SB)/8, $0x1d82c63da
DATA ·lanes<>+16(SB)/8, $0x1384aa63a
DATA ·lanes<>+24(SB)/8, $0x0ba4fc28e
DATA ·lanes<>+32(SB)/8, $0x0f20c0dfe
DATA ·lanes<>+40(SB)/8, $0x14cd00bd6
DATA ·lanes<>+48(SB)/8, $0
DATA ·lanes<>+56(SB)/8, $0
GLOBL ·lanes<>(SB), RODATA|NOPTR, $64

// FOLD moves acc on by the constants in k and adds what is in with.
#define FOLD(k, acc, with, tmp) \
	VPCLMULQDQ $0x00, k, acc, tmp \
	VPCLMULQDQ $0x11, k, acc, acc \
	VPTERNLOGQ $0x96, with, tmp, acc

// func fold(state uint32, p *byte, n int) uint32
TEXT ·fold(SB), NOSPLIT, $0-28
	MOVL state+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX

	VMOVD      AX, X8
	VPXORQ     (SI), Z8, Z0
	VMOVDQU64  64(SI), Z1
	VMOVDQU64  128(SI), Z2
	VMOVDQU64  192(SI), Z3
	ADDQ       $256, SI
	SUBQ       $256, CX
	JZ         join

	VBROADCASTI32X4 ·by2048<>(SB), Z16

loop:
	FOLD(Z16, Z0, (SI), Z4)
	FOLD(Z16, Z1, 64(SI), Z5)
	FOLD(Z16, Z2, 128(SI), Z6)
	FOLD(Z16, Z3, 192(SI), Z7)
	ADDQ $256, SI
	SUBQ $256, CX
	JNZ  loop

join:
	VBROADCASTI32X4 ·by1536<>(SB), Z17
	VBROADCASTI32X4 ·by1024<>(SB), Z18
	VBROADCASTI32X4 ·by512<>(SB), Z19
	FOLD(Z17, Z0, Z3, Z4)
	FOLD(Z18, Z1, Z0, Z5)
	FOLD(Z19, Z2, Z1, Z6)

	// Z2 are 512 bits; its four parts become one.
	VMOVDQU64     ·lanes<>(SB), Z17
	VPCLMULQDQ    $0x00, Z17, Z2, Z4
	VPCLMULQDQ    $0x11, Z17, Z2, Z5
	VPXORQ        Z4, Z5, Z4
	VEXTRACTI64X2 $3, Z2, X0
	VEXTRACTI64X2 $1, Z4, X1
	VEXTRACTI64X2 $2, Z4, X5
	VPXOR         X4, X0, X0
	VPXOR         X1, X5, X1
	VPXOR         X0, X1, X0

	VMOVQ   X0, R8
	VPEXTRQ $1, X0, R9
	VZEROUPPER
	XORL    AX, AX
	CRC32Q  R8, AX
	CRC32Q  R9, AX
	MOVL    AX, ret+24(FP)
	RET

// func words(state uint32, p *byte, n int) uint32
TEXT ·words(SB), NOSPLIT, $0-28
	MOVL state+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	SUBQ $8, CX
	JB   tail

eight:
	CRC32Q (SI), AX
	ADDQ   $8, SI
	SUBQ   $8, CX
	JAE    eight

tail:
	TESTQ  $4, CX
	JZ     two
	CRC32L (SI), AX
	ADDQ   $4, SI

two:
	TESTQ  $2, CX
	JZ     one
	CRC32W (SI), AX
	ADDQ   $2, SI

one:
	TESTQ  $1, CX
	JZ     done
	CRC32B (SI), AX

done:
	MOVL AX, ret+24(FP)
	RET
