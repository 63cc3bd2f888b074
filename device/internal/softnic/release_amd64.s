//go:build !race

#include "textflag.h"

// func storeRelease(p *atomic.Uint32, v uint32)
TEXT ·storeRelease(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func storeReleaseWord(p *atomic.Uint64, v uint64)
TEXT ·storeReleaseWord(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET
