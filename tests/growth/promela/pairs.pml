/* ../pairs.star: N ranks in pairs. Each rank decides whether the communicator of its pair is warm, and the pair agrees on it.
 * Then both enter its init, the even rank sends, and the odd one receives.
 *
 * The vote is forgotten once it is cast. The channel has one sender and one receiver, which SPIN is told.
 */
byte came[N / 2], entered[N / 2];
bool agreed[N / 2] = true;
chan link[N / 2] = [1] of { bit };

inline connect() {
  if :: warm = true :: warm = false fi;
  d_step { agreed[pair] = agreed[pair] && warm; came[pair]++; warm = false };
  came[pair] == 2;
  d_step { entered[pair]++ };
  entered[pair] == 2
}

proctype even(byte pair; chan to) {
  bool warm;
  xs to;
  connect();
  to!1;
  if :: agreed[pair] :: else fi
}

proctype odd(byte pair; chan from) {
  bool warm;
  xr from;
  connect();
  from?1;
  if :: agreed[pair] :: else fi
}

init { atomic { byte j; do :: j < N / 2 -> run even(j, link[j]); run odd(j, link[j]); j++ :: j == N / 2 -> break od } }
