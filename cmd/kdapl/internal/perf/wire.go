package perf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"kdapl/dat"
)

// Version is the version of what the two ends of a measurement say to each other: the private data of
// this file, and the control messages. Both ends must have the same.
const Version = 2

// The private data begins with a magic number and the version. The request goes on with op, kind,
// verify, completion, size, depth, warm-up, duration in milliseconds and salt; it fits into the 56 bytes
// that InfiniBand leaves. The accept goes on with the address and context of the responder's memory.
const (
	requestMagic = 0x6B445001
	requestLen   = 33
	acceptMagic  = 0x6B445002
	acceptLen    = 17
)

// request is what a requester asks of a responder.
type request struct {
	Spec
	// completion is how the responder learns of its completions.
	completion Completion
}

func (r *request) encode() []byte {
	b := make([]byte, 0, requestLen)
	b = binary.BigEndian.AppendUint32(b, requestMagic)
	verify := byte(0)
	if r.Verify {
		verify = 1
	}
	b = append(b, Version, byte(r.Op), byte(r.Kind), verify, byte(r.completion))
	for _, v := range [...]int{r.Size, r.Depth, r.WarmUp, int(min(r.Duration.Milliseconds(), math.MaxUint32))} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return binary.BigEndian.AppendUint64(b, r.salt)
}

// decodeRequest reads what a requester sent, which may be anything.
func decodeRequest(b []byte) (request, error) {
	if err := checkHead(b, requestMagic, requestLen); err != nil {
		return request{}, err
	}
	u32 := func(at int) int { return int(min(uint64(binary.BigEndian.Uint32(b[at:])), math.MaxInt)) }
	r := request{completion: Completion(b[8]), Spec: Spec{
		Op: Op(b[5]), Kind: Kind(b[6]), Verify: b[7]&1 != 0, List: 1, Messages: math.MaxInt,
		Size: u32(9), Depth: u32(13), WarmUp: u32(17), Duration: time.Duration(binary.BigEndian.Uint32(b[21:])) * time.Millisecond,
		salt: binary.BigEndian.Uint64(b[25:])}}
	if int(r.Op) >= len(opNames) || int(r.Kind) >= len(kindNames) || int(r.completion) >= len(completionNames) {
		return request{}, errors.New("this measurement is not known here")
	}
	var err error
	r.Spec, err = r.plan()
	return r, err
}

// encodeAccept tells the requester where the responder's memory is.
func encodeAccept(t dat.RMRTriplet) []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, acceptLen), acceptMagic)
	b = append(b, Version)
	b = binary.BigEndian.AppendUint64(b, t.VirtualAddress)
	return binary.BigEndian.AppendUint32(b, t.RMRContext)
}

func decodeAccept(b []byte) (t dat.RMRTriplet, err error) {
	if err := checkHead(b, acceptMagic, acceptLen); err != nil {
		return t, err
	}
	t.VirtualAddress = binary.BigEndian.Uint64(b[5:])
	t.RMRContext = binary.BigEndian.Uint32(b[13:])
	return t, nil
}

// checkHead checks how private data begins, and that it is long enough.
func checkHead(b []byte, magic uint32, length int) error {
	switch {
	case len(b) < 5 || binary.BigEndian.Uint32(b) != magic:
		return errors.New("the other side is not kdapl perf")
	case b[4] != Version:
		return fmt.Errorf("kdapl perf has version %d of its protocol here and %d on the other side", Version, b[4])
	case len(b) < length:
		return errors.New("what the other side of kdapl perf says is cut short")
	}
	return nil
}
