CREATE SCHEMA billing;

CREATE TABLE invoices (
  invoice_no     int PRIMARY KEY,
  amount_cents   int NOT NULL,
  invoice_status text NOT NULL DEFAULT 'open',
  paid_at        timestamptz(3)
);

CREATE TABLE payments (
  payment_id   uuid PRIMARY KEY,
  invoice_no   int NOT NULL REFERENCES invoices,
  amount_cents int NOT NULL
);

CREATE TABLE accounts (
  account_no    bigint PRIMARY KEY,
  balance_cents bigint NOT NULL
);

CREATE TABLE billing."Booked Seats" (
  "Flight No" text,
  "select"    int,
  "Holder"    text,
  PRIMARY KEY ("Flight No", "select")
);
